"""frisk: police stops in New York City by ethnic group and precinct (the paper's Poisson model).

Gelman & Hill (2007); Gelman, Fagan & Kiss (2007). Noise was added for confidentiality. The paper's
subset: weapon crimes, precincts whose population is between 10% and 40% black.
"""

import numpy as np
from jaxtyping import Int

from .files import RawFile
from .files import load as load_file
from .tables import Counts, Expect, expect

FILE = RawFile(
    "frisk_with_noise.dat",
    "http://www.stat.columbia.edu/~gelman/arm/examples/police/frisk_with_noise.dat",
    sha256="fe54b4afcd931eaa88ab3d34ba380b44e4dcffa7d3a49df1b730a31779f72e94",
)

COLUMNS = ["stops", "pop", "past.arrests", "precinct", "eth", "crime"]
WEAPONS = 2
MONTHS = 15  # of stops; past arrests are those of one year


def load() -> Counts:
    """The checked subset: 3 groups (black, hispanic, white) at 32 sites, 96 rows."""
    return load_file(FILE, parse)


def parse(text: str, expect: Expect = expect) -> Counts:
    """Read the records and take the subset; raise a `ValueError` unless they are frisk."""
    stops, population, arrests, precinct, group, crime = _records(text, expect).T
    cells = len(set(zip(precinct.tolist(), group.tolist(), crime.tolist(), strict=True)))
    expect(
        records=(900, len(stops)),
        precincts=((1, 75), (int(precinct.min()), int(precinct.max()))),
        groups=((1, 3), (int(group.min()), int(group.max()))),
        crimes=((1, 4), (int(crime.min()), int(crime.max()))),
        distinct_precinct_group_crime_cells=(900, cells),
    )
    weapons = crime == WEAPONS
    residents = np.zeros((76, 4))
    residents[precinct[weapons], group[weapons]] = population[weapons]
    share = residents[:, 1] / np.maximum(residents.sum(axis=1), 1)
    kept = weapons & (share[precinct] > 0.1) & (share[precinct] <= 0.4)
    precincts, site = np.unique(precinct[kept], return_inverse=True)
    expect(
        precincts_of_the_subset=(32, len(precincts)),
        rows_of_the_subset=(96, int(np.sum(kept))),
        sum_of_stops=(25264, int(np.sum(stops[kept]))),
        sum_of_past_arrests=(10744, int(np.sum(arrests[kept]))),
        smallest_past_arrests=(6, int(np.min(arrests[kept]))),
    )
    offset = np.log(arrests[kept] * MONTHS / 12)
    return Counts(group[kept] - 1, site, offset, stops[kept].astype(float))


def _records(text: str, expect: Expect) -> Int[np.ndarray, "records 6"]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if COLUMNS not in lines:
        raise ValueError(f"expected a header line {' '.join(COLUMNS)!r}, found none")
    records = lines[lines.index(COLUMNS) + 1 :]
    widths = sorted({len(record) for record in records})
    expect(values_per_record=([len(COLUMNS)], widths))
    return np.array([[int(value) for value in record] for record in records])
