"""The paper's future work: Stein weights for semi-implicit families and energies, as a study."""
