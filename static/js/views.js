/** Which of the page's views is shown: one `[data-view]` button and one `#view-…` section each. */

const buttons = () => [...document.querySelectorAll("[data-view]")];

export class Views {
  #onChange;
  current = "chat";

  constructor({ onChange }) {
    this.#onChange = onChange;
    for (const button of buttons()) button.addEventListener("click", () => this.show(button.dataset.view));
  }

  show(name) {
    this.current = name;
    for (const button of buttons()) {
      const shown = button.dataset.view === name;
      button.toggleAttribute("aria-current", shown);
      if (shown) button.setAttribute("aria-current", "page");
      document.getElementById(`view-${button.dataset.view}`).hidden = !shown;
    }
    window.scrollTo({ top: 0 });
    this.#onChange();
  }
}
