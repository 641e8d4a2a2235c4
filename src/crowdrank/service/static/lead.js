// Pages of leads: buttons and forms with data attributes become calls of the API.
//
// data-method, data-path, data-body: the request. Fields of a form are added to the body by their names: `quotas.human.0`
//   is the first value of a list. data-number is a factor of a number; an empty number is null. Boxes with data-list make
//   a list of ids. data-new-id adds an id made by the client.
// data-file: the file of the form is sent as the body of a request, with the other fields as parameters.
// data-upload: the fields and files of the form are sent to this page, which answers with the next page.
// data-live: this element is replaced by its new state after a request.
// data-waiting, data-done: text of the button meanwhile, and of the message afterwards, where {pairs} is the number of
//   changed pairs, and {messages} are the warnings and notes of the answer. data-next: page to open instead.
// data-confirm, data-consequence: question and explanation that must be confirmed first; {pair_ids} is the number of
//   selected pairs.
// data-empty: problem to show if a list of the body is empty.
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

  /** Send the fields and files of a form to a page; return the answer. */
  async function upload(form) {
    const headers = { "X-Form-Token": formToken };
    const body = new FormData(form);
    const response = await fetch(form.dataset.upload, { method: "POST", credentials: "same-origin", headers, body });
    if (!(response.headers.get("Content-Type") || "").startsWith("application/json"))
      throw new Error("You are signed out, or may not do this.");
    const answer = await response.json();
    if (!response.ok) throw new Error(sentence(answer));
    return answer;
  }

  /** Send the file of a form as the body of a request, with the other fields as parameters; return the answer. */
  async function sendFile(form) {
    const headers = { "Content-Type": "application/octet-stream", "X-Form-Token": formToken };
    const body = form.querySelector("input[type=file]").files[0];
    const address = `/api${form.dataset.path}?${new URLSearchParams(new FormData(form))}`;
    const response = await fetch(address, { method: "POST", credentials: "same-origin", headers, body });
    const answer = await response.json();
    if (!response.ok) throw new Error(sentence(answer));
    return answer;
  }

  function sentence({ problem, parameter, fix }) {
    const text = parameter && !problem.startsWith("there") ? `${parameter} ${problem}` : problem;
    return `${text.charAt(0).toUpperCase()}${text.slice(1)}.${fix ? ` To fix it: ${fix}.` : ""}`;
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

  // ---- Forms ------------------------------------------------------------------------------------------------------

  function newClientId() {
    const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID exists under HTTPS only
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** Return the value of a field, or undefined if it adds nothing to the body. */
  function valueOf(field) {
    if (field.type === "checkbox") return field.checked;
    if (field.type === "radio" && !field.checked) return undefined;
    if (field.dataset.number === undefined) return field.value;
    return field.value === "" ? null : Math.round(1e6 * Number(field.value) * Number(field.dataset.number)) / 1e6;
  }

  /** Put a value into a nested object; numbers in the name are places in lists. */
  function put(body, name, value) {
    const keys = name.split(".");
    const last = keys.pop();
    let here = body;
    keys.forEach((key, place) => {
      const next = keys[place + 1] || last;
      if (here[key] === undefined) here[key] = /^\d+$/.test(next) ? [] : {};
      here = here[key];
    });
    here[last] = value;
  }

  function bodyOf(form) {
    const body = JSON.parse(form.dataset.body || "{}");
    for (const field of form.elements) {
      if (!field.name) continue;
      if (field.dataset.list !== undefined) {
        body[field.name] = body[field.name] || [];
        if (field.checked) body[field.name].push(Number(field.value));
      } else if (valueOf(field) !== undefined) {
        put(body, field.name, valueOf(field));
      }
    }
    if (form.dataset.newId !== undefined) body.client_id = newClientId();
    return body;
  }

  function showSecret(form, secret) {
    const shown = document.getElementById(form.dataset.secret);
    const prefix = form.dataset.prefix === undefined ? "" : `${location.origin}${form.dataset.prefix}`;
    shown.querySelector("input").value = prefix + secret;
    shown.hidden = false;
  }

  async function copy(button) {
    const field = document.getElementById(button.dataset.copy);
    field.select();
    if (navigator.clipboard) await navigator.clipboard.writeText(field.value);
    else document.execCommand("copy"); // without HTTPS
    button.textContent = "Copied";
  }

  // ---- Requests ---------------------------------------------------------------------------------------------------

  /** Ask whether a request should be sent; return the answer. */
  function isConfirmed(button, body) {
    const { confirm, consequence } = button.dataset;
    if (!confirm) return true;
    const dialog = document.getElementById("confirmation");
    const question = confirm.replace("{pair_ids}", () => (body.pair_ids || []).length);
    dialog.querySelector("#confirmation-title").textContent = question;
    dialog.querySelector("#confirmation-text").textContent = consequence;
    dialog.querySelector("#confirm").textContent = button.firstChild.textContent;
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    });
  }

  function request(element, method, path, body) {
    if (element.dataset.upload) return upload(element);
    return element.dataset.file === undefined ? send(method, path, body) : sendFile(element);
  }

  /** Send a request for a form or button, and show its result or problem; the button cannot be used meanwhile. */
  async function act(element, button, body) {
    const { method, waiting, done, empty } = { ...element.dataset, ...button.dataset };
    const path = button.dataset.path || element.dataset.path;
    const section = element.closest("section");
    const [problem, result] = [section.querySelector(".problem"), section.querySelector(".done")];
    const text = button.textContent;
    problem.hidden = result.hidden = true;
    if (empty && Object.values(body).some((value) => Array.isArray(value) && !value.length)) {
      problem.textContent = empty;
      problem.hidden = false;
      return;
    }
    if (!(await isConfirmed(button, body))) return;
    button.disabled = true;
    if (waiting) button.textContent = waiting;
    try {
      const answer = await request(element, method, path, body);
      const next = element.dataset.upload ? answer.next : element.dataset.next;
      if (element.dataset.secret) showSecret(element, answer.secret);
      if (next) location.assign(next);
      else await refresh();
      const messages = (answer && answer.messages) || [];
      result.textContent = (done || "")
        .replace("{pairs}", () => (answer ? answer.pairs : ""))
        .replace("{messages}", () => messages.map(sentence).join(" "));
      result.hidden = !done;
    } catch (failure) {
      problem.textContent = failure.message;
      problem.hidden = false;
    } finally {
      button.disabled = false;
      if (waiting) button.textContent = text;
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || button.form) return;
    if (button.dataset.copy) copy(button);
    else if (button.dataset.path) act(button, button, JSON.parse(button.dataset.body || "{}"));
  });

  document.addEventListener("submit", (event) => {
    const [form, button] = [event.target, event.submitter];
    const { method, upload: page, file } = form.dataset;
    if (!method && !page && file === undefined) return;
    event.preventDefault();
    act(form, button, { ...bodyOf(form), ...JSON.parse(button.dataset.body || "{}") });
  });

  document.addEventListener("change", ({ target }) => {
    if (target.dataset.selectAll === undefined) return;
    for (const box of document.getElementsByName(target.dataset.selectAll)) box.checked = target.checked;
  });
})();
