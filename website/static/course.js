// The theme's icons are drawn once: looking for more in every change of a page would cost more than a picture does.
window.FontAwesomeConfig = {observeMutations: false};

// Paper is white.
(() => {
  const page = document.documentElement.dataset;
  let theme;
  addEventListener('beforeprint', () => { theme = page.theme; page.theme = 'light'; });
  addEventListener('afterprint', () => { page.theme = theme; });
})();

// What scrolls sideways can be reached with the keyboard to do so.
(() => {
  const boxes = 'pre, .cell_output .output, .course-figure, .course-picture, .pst-scrollable-table-container';
  const reach = () => document.querySelectorAll(boxes).forEach(box => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  });
  addEventListener('load', reach);
  addEventListener('resize', reach);
  new MutationObserver(reach).observe(document.documentElement, {subtree: true, attributeFilter: ['open', 'hidden', 'data-theme']});
})();
