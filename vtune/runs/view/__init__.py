"""Looking at what runs did: `vtune show`, `vtune view` and the page of `vtune report`."""
