(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("filters");
  const reading = document.getElementById("reading");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 640px)");

  const choice = () => ({
    task: form.elements.task.value,
    family: form.elements.family.value,
    draws: form.elements.draws.value,
    x: form.elements.x.value,
    statistic: form.elements.statistic.value,
    range: form.elements.range.checked,
    whole: form.elements.whole.checked,
  });

  // Lines are drawn for white paper: on a dark one they are mixed with white.
  function shade(colour, alpha) {
    const mix = dark.matches ? 0.3 : 0;
    const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const mixed = parts.map((part) => Math.round(part + (255 - part) * mix));
    return `rgba(${mixed.join(",")},${alpha})`;
  }

  // Plotly reads a little HTML in names and titles: leave none.
  const text = (raw) => String(raw).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function chosen(want) {
    return data.series.filter((one) => one.task === want.task && one.family === want.family
      && (want.draws === "all" || one.draws === null || String(one.draws) === want.draws));
  }

  function traces(want, quantity) {
    const out = [], answers = [];
    for (const one of chosen(want)) {
      const curve = one[quantity];
      if (!curve) continue;
      const look = data.labels[one.label];
      const many = want.draws === "all" && one.draws !== null;
      const name = text(look.name) + (many ? `, L = ${one.draws}` : "");
      const group = `${one.label}|${one.draws}`;
      const x = curve[want.x];
      if (x.every((value) => value === null)) continue;
      if (want.range && quantity === "elbo") {
        out.push({
          x: x.concat(x.slice().reverse()), y: curve.high.concat(curve.low.slice().reverse()),
          fill: "toself", fillcolor: shade(look.colour, 0.14), line: { width: 0 }, mode: "lines",
          type: "scatter", hoverinfo: "skip", showlegend: false, legendgroup: group, name: name,
        });
      }
      const dash = many ? ["solid", "dot", "dash"][data.draws.indexOf(one.draws) % 3] : look.dash;
      out.push({
        x: x, y: curve[want.statistic], type: "scatter", name: name, legendgroup: group,
        mode: x.length === 1 ? "markers" : "lines",
        line: { color: shade(look.colour, 1), width: 2.2, dash: dash },
      });
      if (one.ends) answers.push({ at: x.length - 1, x: x, y: curve[want.statistic], colour: shade(look.colour, 1), group: group });
    }
    // What a method ended with, as a dot and a thin line up to where the last run ends.
    const end = Math.max(...out.flatMap((line) => line.x).filter((value) => value !== null));
    for (const one of answers) {
      out.push({
        x: [one.x[one.at], end], y: [one.y[one.at], one.y[one.at]], type: "scatter", mode: "lines+markers",
        line: { color: one.colour, width: 0.8 }, marker: { color: one.colour, size: [8, 0] },
        hoverinfo: "skip", showlegend: false, legendgroup: one.group, name: "",
      });
    }
    return out;
  }

  // Zero or less cannot be on a logarithmic axis, and one decade or less need not be.
  function logarithmic(axis, lines) {
    const values = lines.flatMap((line) => line.y).filter((value) => value > 0);
    const low = Math.min(1, ...values), high = Math.max(1, ...values);
    if (!(high > 5 * low)) {
      axis.rangemode = "tozero";
      return;
    }
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const digit of high / low > 1000 ? [1] : [1, 2, 5]) ticks.push(Number(`${digit}e${power}`));
    }
    Object.assign(axis, { type: "log", tickmode: "array", tickvals: ticks, ticktext: ticks.map(String) });
  }

  // Where one run takes far longer than another, only a logarithmic axis shows both.
  function timeAxis(axis, want, lines) {
    if (want.x !== "seconds") return;
    const ends = lines.filter((line) => line.showlegend !== false).map((line) => Math.max(...line.x)).filter((value) => value > 0);
    const low = Math.min(...ends), high = Math.max(...ends);
    if (!(high > 10 * low)) return;
    const ticks = [];
    for (let power = Math.floor(Math.log10(low / 3)); power <= Math.log10(high); power += 1) {
      for (const digit of [1, 3]) ticks.push(Number(`${digit}e${power}`));
    }
    Object.assign(axis, { type: "log", range: [Math.log10(low / 3), Math.log10(high * 1.1)], tickmode: "array", tickvals: ticks, ticktext: ticks.map(String) });
  }

  function layout(want, title, lines) {
    const css = getComputedStyle(document.documentElement);
    const ink = css.getPropertyValue("--ink").trim();
    const line = css.getPropertyValue("--line").trim();
    const axis = { gridcolor: line, zeroline: false, linecolor: line, automargin: true, fixedrange: narrow.matches };
    const made = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 13, family: "system-ui, sans-serif" },
      margin: { l: 60, r: 12, t: 10, b: 50 }, hovermode: "x unified", showlegend: true,
      hoverlabel: { bgcolor: css.getPropertyValue("--raised").trim(), font: { color: ink } },
      xaxis: { ...axis, title: { text: want.x === "seconds" ? "seconds of optimisation" : "iteration", standoff: 6 } },
      yaxis: { ...axis, title: { text: title }, exponentformat: "none", hoverformat: ".6~g" },
      legend: { orientation: "h", y: narrow.matches ? -0.26 : -0.17, x: 0, yanchor: "top" },
      annotations: [],
    };
    timeAxis(made.xaxis, want, lines);
    if (lines.length === 0) {
      made.annotations.push({ text: "nothing was evaluated for this choice", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 });
    }
    return made;
  }

  function describe(want) {
    const ends = chosen(want).filter((one) => one.elbo).map((one) => {
      const values = one.elbo[want.statistic].filter((value) => value !== null);
      const label = data.labels[one.label].name + (want.draws === "all" && one.draws !== null ? `, L = ${one.draws}` : "");
      return { label: label, end: values[values.length - 1] };
    });
    if (ends.length === 0) return "No run has finished for this choice.";
    ends.sort((a, b) => b.end - a.end);
    const digits = (value) => value.toFixed(Math.abs(value) < 1e5 ? 2 : 0).replace("-", "−");
    return "ELBO at the end: " + ends.map((one) => `${one.label} ${digits(one.end)}`).join(" · ");
  }

  function show() {
    const want = choice();
    const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"], displayModeBar: narrow.matches ? false : "hover" };
    const elbo = traces(want, "elbo");
    const first = layout(want, "ELBO (nats)", elbo);
    const limits = data.limits[`${want.task}|${want.family}`];
    if (limits && !want.whole) first.yaxis.range = limits;
    const ratio = traces(want, "ratio");
    const second = layout(want, "variance ratio", ratio);
    logarithmic(second.yaxis, ratio);
    Plotly.react("elbo-plot", elbo, first, config);
    Plotly.react("ratio-plot", ratio, second, config);
    reading.textContent = describe(want);
  }

  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  dark.addEventListener("change", show);
  narrow.addEventListener("change", show);
  show();
})();
