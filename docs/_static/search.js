// Sphinx's search finds an index term that contains the query. A line pasted from a terminal is
// longer than the term, and has other numbers. So look for the longest term in the line.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined" || !Search._performSearch) return;
  const perform = Search._performSearch;
  const plain = (text) => text.toLowerCase().replace(/\d+/g, "0");
  Search._performSearch = (query, ...more) => {
    const found = Object.keys(Search._index.indexentries)
      .filter((term) => term.length > 11 && plain(query).includes(plain(term)))
      .sort((a, b) => b.length - a.length);
    return perform(found[0] ?? query, ...more);
  };
});
