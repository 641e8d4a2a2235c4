// Pages of leads: buttons and forms with data attributes become calls of the API.
//
// data-method, data-path and data-body: the request. Fields of a form are added to the body by their names:
// `quotas.human.0` is the first number of a list. data-number multiplies a number by a factor; an empty one is null.
// data-live: this element is replaced by its new state after a request.
// data-secret: the form shows the secret of the answer in the element with this id, behind data-prefix.
"use strict";

(() => {
  const formToken = document.getElementById("sign-out").dataset.formToken;

  async function send(method, path, body) {
    const response = await fetch(`/api${path}`, {
      method,
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Form-Token": formToken },
      body: method === "DELETE" ? undefined : JSON.stringify(body),
    });
    const answer = response.status === 204 ? null : await response.json();
    if (!response.ok) throw new Error(sentence(answer));
    return answer;
  }

  function sentence({ problem, parameter, fix }) {
    const text = parameter && !problem.startsWith("there") ? `${parameter} ${problem}` : problem;
    return `${text.charAt(0).toUpperCase()}${text.slice(1)}.${fix ? ` To fix it: ${fix}.` : ""}`;
  }

  /** Return the element for problems that is closest to an element. */
  function problemOf(element) {
    return element.closest("section").querySelector(".problem");
  }

  /** Replace the parts of the page that change, and keep the focus. */
  async function refresh() {
    const response = await fetch(location.href, { credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const focused = document.activeElement && document.activeElement.id;
    for (const old of document.querySelectorAll("[data-live]")) {
      const changed = page.getElementById(old.id);
      if (changed) old.replaceWith(changed);
    }
    if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
  }

  /** Send a request for an element, show its result or problem; buttons cannot be used meanwhile. */
  async function act(element, button, body) {
    const { method, path, waiting } = element.dataset;
    const problem = problemOf(element);
    const text = button.textContent;
    problem.hidden = true;
    button.disabled = true;
    if (waiting) button.textContent = waiting;
    try {
      const answer = await send(method, path, body);
      if (element.dataset.secret) showSecret(element, answer.secret);
      if (element.dataset.next) location.assign(element.dataset.next);
      else await refresh();
    } catch (failure) {
      problem.textContent = failure.message;
      problem.hidden = false;
    } finally {
      button.disabled = false;
      if (waiting) button.textContent = text;
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-path]");
    if (button) act(button, button, JSON.parse(button.dataset.body || "{}"));
  });
})();
