// The judging loop: show a document, take an answer, send it, show the next.
// Documents are untrusted: their text enters the page through textContent only.
"use strict";

(() => {
  const config = JSON.parse(document.getElementById("judging-config").textContent);
  const IDLE_MS = 60_000; // without input for this long, time counts as away
  const FIRST_RETRY_MS = 1000;
  const MAX_RETRY_MS = 30_000;
  const MAX_BATCH = 100; // answers per request
  const element = (id) => document.getElementById(id);

  // ---- Elements -------------------------------------------------------------------------------------------------

  function make(tag, properties = {}, children = []) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("aria-") || name === "for" || name === "role") node.setAttribute(name, value);
      else node[name] = value;
    }
    node.append(...children);
    return node;
  }

  /** Return a text with a capital letter and a period. */
  function sentence(text) {
    return `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;
  }

  function announce(text) {
    element("announcement").textContent = text;
  }

  // ---- Grades, or preferences between two documents ---------------------------------------------------------------

  const asksPreferences = config.task === "preferences";
  const KEY_NAMES = { ArrowLeft: "←", " ": "space", ArrowRight: "→" };
  const buttonLabel = (name) => (asksPreferences ? name.charAt(0).toUpperCase() + name.slice(1) : name);
  const titleOf = ({ document: content, other }) =>
    [content, other].filter(Boolean).map((one) => one.title || one.id).join(" | ");
  const isShort = config.grades.every((name) => name.length <= 4);
  const nGrades = config.grades.length;
  const gradeColumns = `in-${isShort ? Math.min(nGrades, 5) : nGrades === 4 ? 2 : Math.min(nGrades, 3)}`; // on phones

  // ---- Time on task -----------------------------------------------------------------------------------------------

  class Stopwatch {
    constructor() {
      this.began = performance.now();
      this.activeMs = 0;
      this.resumed = document.hidden ? null : this.began;
      this.lastInput = this.began;
    }

    input() {
      this.pauseIfIdle();
      this.lastInput = performance.now();
      if (this.resumed === null && !document.hidden) this.resumed = this.lastInput;
    }

    pauseIfIdle() {
      const idleFrom = this.lastInput + IDLE_MS;
      if (this.resumed !== null && performance.now() > idleFrom) this.pause(idleFrom);
    }

    pause(at = performance.now()) {
      if (this.resumed !== null) this.activeMs += Math.max(0, at - this.resumed);
      this.resumed = null;
    }

    read() {
      this.pauseIfIdle();
      const now = performance.now();
      const active = this.activeMs + (this.resumed === null ? 0 : now - this.resumed);
      return { active_ms: Math.round(active), away_ms: Math.round(now - this.began - active) };
    }
  }

  // ---- Answers that are not acknowledged yet ----------------------------------------------------------------------

  /** Answers that the browser keeps, also after the page is closed; without room for them, only until then. */
  class Outbox {
    constructor(key) {
      this.key = key;
      this.isFull = false;
      this.unstored = []; // answers that the browser has no room for
    }

    get stored() {
      try {
        const stored = JSON.parse(localStorage.getItem(this.key) || "[]");
        return Array.isArray(stored) ? stored : [];
      } catch (problem) {
        console.warn("The stored answers cannot be read.", problem);
        return [];
      }
    }

    get answers() {
      return [...this.stored, ...this.unstored];
    }

    add(answer) {
      this.isFull = !this.write([...this.stored, answer]);
      if (this.isFull) this.unstored.push(answer);
    }

    remove(clientIds) {
      const isKept = (answer) => !clientIds.includes(answer.client_id);
      const unstored = this.unstored.filter(isKept);
      this.unstored = [];
      this.write(this.stored.filter(isKept));
      for (const answer of unstored) this.add(answer);
    }

    /** Store answers; return whether there was room. */
    write(answers) {
      try {
        localStorage.setItem(this.key, JSON.stringify(answers));
        return true;
      } catch (problem) {
        console.warn("The browser cannot store answers.", problem);
        return false;
      }
    }
  }

  function newClientId() {
    const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID exists under HTTPS only
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  const labelOf = (answer) => (answer.kind === "grade" ? config.grades[answer.grade] : config.unjudgeable);

  /** Return answers as CSV that crowdrank reads. */
  function toCsv(answers, assessor) {
    const cell = (value) => `"${String(value === undefined || value === null ? "" : value).replaceAll('"', '""')}"`;
    const rows = answers
      .filter((answer) => answer.kind !== "later")
      .map((answer) => {
        const seconds = (answer.active_ms / 1000).toFixed(1);
        const { query, document: id, other } = answer.shown;
        const documents = asksPreferences ? [id, other] : [id];
        return [query, ...documents, assessor, labelOf(answer), seconds, answer.comment].map(cell).join(",");
      });
    const names = asksPreferences ? "query,left,right,assessor,preference" : "query,document,assessor,label";
    return [`${names},seconds,comment`, ...rows, ""].join("\r\n");
  }

  function saveAnswers(answers, assessor) {
    const link = make("a", { download: `answers-${assessor.replace(/[^\p{L}\p{N}_-]/gu, "_")}.csv` });
    link.href = URL.createObjectURL(new Blob([toCsv(answers, assessor)], { type: "text/csv" }));
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // ---- Where cards come from and answers go -----------------------------------------------------------------------

  const SIGN_IN = "Open this page in a new tab and sign in there; then come back to this one.";

  /** A request that did not succeed. Only an error object of the service's API says why; anybody may have sent the rest. */
  class RequestFailed extends Error {
    constructor(status, body) {
      const isOurs = status >= 400 && Boolean(body) && typeof body.problem === "string" && typeof body.kind === "string";
      const parts = isOurs ? [body.problem, status === 401 ? SIGN_IN : body.fix] : [RequestFailed.foreign(status), SIGN_IN];
      super(parts.filter(Boolean).map(sentence).join(" "));
      this.status = status;
      this.kind = isOurs ? body.kind : null;
      this.isTemporary = isOurs && (status >= 500 || status === 408 || status === 429);
      this.isRefusal = isOurs && !this.isTemporary && status !== 401;
      this.refused = this.isRefusal && typeof body.client_id === "string" ? body.client_id : null; // never to be stored
    }

    static foreign(status) {
      const what = status === 0 ? "sends this page to another address" : `answers with status ${status}`;
      return `Something between this browser and the judging service ${what}, such as a proxy that wants you to sign in`;
    }
  }

  /** Cards and answers of the service's API. */
  class Service {
    constructor() {
      const person = `${config.project}:${config.assessor}`;
      this.outbox = new Outbox(`crowdrank-answers:${person}`);
      this.refused = new Outbox(`crowdrank-refused:${person}`);
      this.undoId = null; // client id of an undo that may have failed
    }

    /** Send a request; return the body of the response if it has the expected form. */
    async request(path, options, isExpected) {
      const response = await fetch(`/api${path}`, { credentials: "same-origin", redirect: "manual", ...options });
      const text = await response.text();
      let body = null;
      try {
        body = JSON.parse(text);
      } catch (problem) {
        console.warn("The response is not JSON.", problem);
      }
      if (response.ok && body && isExpected(body)) return body;
      throw new RequestFailed(response.status, body);
    }

    async post(path, body, isExpected) {
      const send = () => {
        const headers = { "Content-Type": "application/json", "X-Form-Token": config.form_token };
        const options = { method: "POST", headers, body: JSON.stringify(body) };
        return this.request(`/projects/${encodeURIComponent(config.project)}${path}`, options, isExpected);
      };
      try {
        return await send();
      } catch (problem) {
        if (problem.kind !== "bad-form-token") throw problem;
        await this.renewToken();
        return send();
      }
    }

    /** Fetch the form token of the session that began when the person signed in again. */
    async renewToken() {
      const me = await this.request("/me", {}, (body) => typeof body.form_token === "string");
      if (me.name !== config.assessor) {
        const problem = `You are signed in as ${me.name}, and these answers are those of ${config.assessor}`;
        const fix = `Sign out, sign in as ${config.assessor}, then come back to this page`;
        throw new RequestFailed(403, { problem, fix, kind: "other-account" });
      }
      config.form_token = document.getElementById("sign-out").dataset.formToken = me.form_token;
    }

    async next(count) {
      const found = await this.post(`/next?count=${count}`, {}, (body) => Array.isArray(body.leases));
      const leases = found.leases.map((lease) => this.card(lease, found.status === "training"));
      const unsent = this.outbox.answers.filter((answer) => answer.kind !== "later").length;
      return { status: found.reason || found.status, leases, progress: { answered: found.n_answers + unsent } };
    }

    /** Send answers; return the receipts of all of them. */
    send(answers) {
      const sent = answers.map(({ shown, ...answer }) =>
        answer.kind === "grade" ? { ...answer, grade: config.grades[answer.grade] } : answer,
      );
      const isReceipt = (one) => Number.isInteger(one.pair_id) && Number.isInteger(one.received);
      const isReceived = (id, receipts) => receipts.some((one) => one && one.client_id === id && isReceipt(one));
      const isExpected = (body) => Array.isArray(body) && answers.every((answer) => isReceived(answer.client_id, body));
      return this.post("/answers", sent, isExpected);
    }

    async undo() {
      this.undoId = this.undoId || newClientId();
      try {
        const { lease } = await this.post("/undo", { client_id: this.undoId }, (body) => Number.isInteger(body.pair_id));
        this.undoId = null;
        return { leases: lease ? [this.card(lease, false)] : [] };
      } catch (problem) {
        if (problem.isRefusal) this.undoId = null;
        throw problem;
      }
    }

    /** Return a lease of the API as a card. */
    card({ token, content }, isTraining) {
      const { query, query_text: text, need, other } = content;
      const documentOf = ({ document: id, title, body, fields, url }) => ({ id, title, body, fields, url });
      const documents = { document: documentOf(content), other: other ? documentOf(other) : null };
      return { token, is_training: isTraining, query: { id: query, text, need }, ...documents };
    }
  }

  /** Cards of a file without a server; answers stay in the browser until they are saved as a file. */
  class OfflineFile {
    constructor() {
      this.outbox = new Outbox(`crowdrank-unsent:${config.project}`);
      this.refused = new Outbox(`crowdrank-refused:${config.project}`);
      this.store = new Outbox(`crowdrank-file:${config.project}`);
    }

    async next(count) {
      const answered = new Map(this.store.answers.map((answer) => [answer.lease, answer.kind]));
      const open = config.cards.filter((card) => !answered.has(card.token));
      const later = config.cards.filter((card) => answered.get(card.token) === "later");
      const leases = [...open, ...later].slice(0, count);
      const done = config.cards.length - open.length - later.length;
      return { status: leases.length ? "ok" : "done", leases, progress: { answered: done, total: config.cards.length } };
    }

    async send(answers) {
      for (const answer of answers) {
        const earlier = this.store.answers.filter((one) => one.lease === answer.lease);
        this.store.remove(earlier.map((one) => one.client_id));
        this.store.add(answer);
      }
      return answers;
    }

    async undo() {
      const [last] = this.store.answers.slice(-1);
      if (last === undefined) throw new RequestFailed(404, { problem: "There is no answer to undo", kind: "nothing-to-undo" });
      this.store.remove([last.client_id]);
      return { leases: config.cards.filter((card) => card.token === last.lease) };
    }
  }

  const source = config.cards ? new OfflineFile() : new Service();

  // ---- Marked text ------------------------------------------------------------------------------------------------

  /** Return a pattern of the words, or null if there are none. */
  function wordPattern(words) {
    const escaped = words.filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    return escaped.length ? new RegExp(`(${escaped.join("|")})`, "giu") : null;
  }

  function queryWords(text) {
    const words = text.match(/[\p{L}\p{N}]{3,}|\p{Lo}+/gu) || [];
    return [...new Set(words.map((word) => word.toLowerCase()))].sort((a, b) => b.length - a.length);
  }

  /** Replace the content of a node by a text whose ranges are marked: sorted, disjoint [start, end, class]. */
  function setMarkedText(node, text, ranges) {
    const parts = [];
    let position = 0;
    for (const [start, end, name] of ranges) {
      parts.push(text.slice(position, start), make("mark", { className: name, textContent: text.slice(start, end) }));
      position = end;
    }
    parts.push(text.slice(position));
    node.replaceChildren(...parts);
  }

  function matchRanges(text, pattern, name) {
    return pattern ? Array.from(text.matchAll(pattern), (match) => [match.index, match.index + match[0].length, name]) : [];
  }

  /** Return the ranges of both lists; where they overlap, those of `first` stay. */
  function mergeRanges(first, second) {
    const free = second.filter(([start, end]) => first.every(([from, to]) => end <= from || start >= to));
    return [...first, ...free].sort((a, b) => a[0] - b[0]);
  }

  // ---- A card: one document, or two to compare, with the answer -----------------------------------------------------

  class Card {
    constructor(lease) {
      this.lease = lease;
      this.stopwatch = new Stopwatch();
      this.evidence = [];
      this.find = "";
      this.texts = new Map(); // node of each field -> its name and text
      this.node = this.render();
    }

    render() {
      const { document: content, other } = this.lease;
      const sides = [this.pane("Left", content, "left"), other && this.pane("Right", other, "right")];
      const parts = other ? [make("div", { className: "panes" }, sides)] : this.documentParts(content);
      this.comment = make("textarea", { className: "comment", rows: 2, hidden: true, maxLength: 2000 });
      this.comment.setAttribute("aria-label", "Comment");
      this.evidenceList = make("ul", { className: "evidence" });
      parts.push(this.evidenceList, this.comment, this.buttons());
      const card = make("article", { className: "card" }, parts);
      this.mark();
      return card;
    }

    /** Return one of two documents; a click or a tap on it says that it is better. */
    pane(label, content, name) {
      const side = make("p", { className: "side", textContent: label });
      const pane = make("section", { className: "pane", "aria-label": label }, [side, ...this.documentParts(content)]);
      pane.addEventListener("click", (event) => {
        const isReading = event.target.closest("a, button") || !document.getSelection().isCollapsed;
        if (!isReading) answer(this, { kind: "grade", grade: config.grades.indexOf(name) });
      });
      return pane;
    }

    documentParts(content) {
      const heading = make("h2", { className: "title", tabIndex: -1 });
      this.addText(heading, "title", content.title || content.id);
      const parts = [heading];
      if (content.url) parts.push(this.link(content.url));
      for (const [name, value] of Object.entries(content.fields || {})) parts.push(...this.field(name, String(value)));
      if (content.body) {
        const body = make("div", { className: "body", tabIndex: 0, role: "region", "aria-label": "Text of the document" });
        this.addText(body, "body", content.body);
        parts.push(body);
      }
      return parts;
    }

    addText(node, name, text) {
      this.texts.set(node, { name, text });
    }

    link(url) {
      const safe = /^https?:\/\//i.test(url);
      if (!safe) return make("p", { className: "url", textContent: url });
      const anchor = make("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow", textContent: url });
      return make("p", { className: "url" }, [anchor]);
    }

    field(name, value) {
      const text = make("p", { className: "field" });
      this.addText(text, name, value);
      return [make("h3", { textContent: name }), text];
    }

    buttons() {
      const grades = config.grades.map((name, grade) =>
        this.button(config.grade_keys[grade], buttonLabel(name), () => answer(this, { kind: "grade", grade }), "grade"),
      );
      const others = [
        this.button("u", "Cannot judge", () => answer(this, { kind: "cannot-judge" })),
        this.button("l", "Later", () => answer(this, { kind: "later" })),
        this.button("c", "Comment", () => this.openComment()),
        ...(asksPreferences ? [] : [this.button("e", "Mark passage", () => this.addEvidence())]),
      ];
      return make("div", { className: "answers" }, [
        make("div", { className: `grades ${gradeColumns}`, role: "group", "aria-label": asksPreferences ? "Better document" : "Grade" }, grades),
        make("div", { className: "others" }, others),
      ]);
    }

    button(key, label, onclick, className = "") {
      const children = [...(key ? [make("kbd", { textContent: KEY_NAMES[key] || key, "aria-hidden": "true" })] : []), ` ${label}`];
      return make("button", { type: "button", className, onclick }, children);
    }

    openComment() {
      this.comment.hidden = false;
      this.comment.focus();
    }

    /** Keep the selected passage as evidence. */
    addEvidence() {
      const selection = document.getSelection();
      if (selection.isCollapsed || selection.rangeCount === 0) {
        announce("Select a passage of the document first.");
        return;
      }
      const range = selection.getRangeAt(0);
      for (const [node, { name, text }] of this.texts) {
        if (!node.contains(range.startContainer) || !node.contains(range.endContainer)) continue;
        const before = document.createRange();
        before.selectNodeContents(node);
        before.setEnd(range.startContainer, range.startOffset);
        const start = before.toString().length;
        const end = Math.min(start + range.toString().length, text.length);
        if (this.evidence.some((one) => one.field === name && start < one.end && end > one.start)) return;
        this.evidence.push({ field: name, start, end });
        selection.removeAllRanges();
        this.mark();
        announce("Passage marked.");
        return;
      }
      announce("Select a passage within one field of the document.");
    }

    mark() {
      const words = config.layout.mark_terms === false ? null : wordPattern(queryWords(this.lease.query.text));
      const found = wordPattern([this.find]);
      for (const [node, { name, text }] of this.texts) {
        const evidence = this.evidence.filter((one) => one.field === name).map((one) => [one.start, one.end, "passage"]);
        const ranges = mergeRanges(mergeRanges(evidence, matchRanges(text, found, "found")), matchRanges(text, words, "term"));
        setMarkedText(node, text, ranges.sort((a, b) => a[0] - b[0]));
      }
      this.showEvidence();
    }

    showEvidence() {
      const items = this.evidence.map((one, place) => {
        const text = [...this.texts.values()].find((field) => field.name === one.field).text.slice(one.start, one.end);
        const remove = make("button", { type: "button", textContent: "Remove", onclick: () => this.removeEvidence(place) });
        return make("li", {}, [make("q", { textContent: text.length > 120 ? `${text.slice(0, 120)}…` : text }), " ", remove]);
      });
      this.evidenceList.replaceChildren(...items);
    }

    removeEvidence(place) {
      this.evidence.splice(place, 1);
      this.mark();
    }

    /** Return the answer as the API takes it, and what it is about, for people. */
    toAnswer(answer) {
      const { query, document: content, other } = this.lease;
      return {
        lease: this.lease.token,
        client_id: newClientId(),
        ...answer,
        shown: { query: query.id, document: content.id, title: titleOf(this.lease), ...(other && { other: other.id }) },
        comment: this.comment.value.replace(/\0|\p{Surrogate}/gu, "").trim() || null, // what no database can store
        spans: this.evidence,
        ...this.stopwatch.read(),
      };
    }
  }

  // ---- The loop -----------------------------------------------------------------------------------------------------

  const showsQueries = config.layout.mode === "query" && !asksPreferences;
  element("judging").classList.toggle("wide", asksPreferences);
  const CARDS = showsQueries ? 10 : 2; // the current card and the next one, or the documents of a query
  let queue = []; // leases to show, the first one (or those of its query) now
  let cards = []; // cards on the screen
  let focused = 0; // card that keys act on
  let history = []; // leases answered since the page was loaded, newest last
  let status = "loading";
  let failure = null; // problem of the last request, until one succeeds
  let retryMs = FIRST_RETRY_MS;
  let retryTimer = null;
  let busy = Promise.resolve();

  /** Run steps that talk to the server one after the other. */
  function inOrder(step) {
    busy = busy.then(step).catch((problem) => console.error(problem));
    return busy;
  }

  function show() {
    const query = queue.length ? queue[0].query : null;
    const leases = !query ? [] : showsQueries ? queue.filter((lease) => lease.query.id === query.id) : [queue[0]];
    const shown = new Map(cards.map((card) => [card.lease.token, card]));
    cards = leases.map((lease) => shown.get(lease.token) || new Card(lease));
    focused = Math.min(focused, Math.max(cards.length - 1, 0));
    element("query").textContent = query ? query.text || query.id : "";
    element("need").textContent = query ? query.need || "" : "";
    element("need").hidden = !query || !query.need;
    element("task").hidden = !query;
    element("training").hidden = !queue.length || !queue[0].is_training;
    element("cards").replaceChildren(...cards.map((card) => card.node));
    element("message").hidden = cards.length > 0;
    if (!cards.length) element("message").textContent = messages[status] || messages.loading;
    focusCard();
  }

  const messages = {
    loading: "Loading…",
    done: config.cards
      ? "All done. Save the answers and send the file to the person who asked you."
      : "All done. There is nothing more for you to judge at the moment.",
    "no-pairs": "All done. There is nothing more for you to judge at the moment.",
    settled: "All done. The answers so far have settled all documents.",
    "budget-spent": "All done. The budget of this project is spent.",
    "others-asked": "There are no pairs for you at the moment. The project asks other people now. Please come back later.",
    "kind-not-asked": "The project wants no labels of your kind of assessor. Ask the person who invited you.",
    paused: "Your work on this project is paused. Ask the person who invited you.",
    "not-qualified": "The training is over, and it did not qualify you for this project. Ask the person who invited you.",
    closed: "This project is closed.",
    offline: "No connection. Your answers are kept in this browser and sent as soon as the connection is back.",
    stopped: "The next document cannot be loaded at the moment. Your answers are kept in this browser.",
  };

  function focusCard() {
    cards.forEach((card, place) => card.node.classList.toggle("focused", place === focused && cards.length > 1));
    if (!cards.length || element("help").open || element("feedback").open) return;
    const { activeElement } = document;
    if (activeElement === null || !/^(INPUT|TEXTAREA)$/.test(activeElement.tagName)) {
      cards[focused].node.querySelector(".title").focus({ preventScroll: cards.length === 1 });
    }
  }

  function showProgress(progress) {
    if (!progress) return;
    const { answered, total } = progress;
    const bar = element("progress");
    if (total) [bar.max, bar.value] = [total, Math.min(answered, total)];
    bar.hidden = !total;
    element("progress-text").textContent = total ? `${answered} of ${total}` : `${answered} judged`;
  }

  /** Replace a text, so that screen readers read it only if it has changed. */
  function setText(id, text) {
    if (element(id).textContent !== text) element(id).textContent = text;
  }

  /** Show how many answers wait and what to do, answers that cannot be stored, and that the browser has no room. */
  function showWaiting() {
    const waiting = source.outbox.answers.length;
    const needsAction = failure instanceof RequestFailed && !failure.isTemporary;
    const kept = waiting === 1 ? "1 answer is not sent yet" : `${waiting} answers are not sent yet`;
    setText("connection", failure && waiting ? `${waiting} not sent yet` : "");
    element("waiting").hidden = !needsAction;
    element("save-waiting").hidden = !waiting;
    if (needsAction) setText("waiting-text", `${waiting ? `${kept}; this browser keeps them. ` : ""}${failure.message}`);
    element("no-room").hidden = ![source.outbox, source.store].some((kept) => kept && kept.isFull);
    const refused = source.refused.answers;
    element("refused").hidden = !refused.length;
    const items = refused.map(({ shown, reason, ...one }) => {
      const label = one.kind === "later" ? "later" : labelOf(one);
      return make("li", { textContent: `${shown.query}, ${shown.title}: ${label}. ${reason}` });
    });
    element("refused-list").replaceChildren(...items);
  }

  /** Return whether answers are lost when the page is closed. */
  function isAtRisk() {
    return [source.outbox, source.refused, source.store].some((kept) => kept && kept.unstored.length);
  }

  /** Take an answer, show the next card at once, and send the answer in the background. */
  function answer(card, given) {
    const sent = card.toAnswer(given);
    source.outbox.add(sent);
    source.undoId = null; // from now on, undo means this answer
    history.push(card.lease);
    queue = queue.filter((lease) => lease.token !== card.lease.token);
    const label = given.kind === "grade" ? config.grades[given.grade] : given.kind.replace("-", " ");
    announce(`${label}. ${queue.length ? "Next document." : ""}`);
    if (!queue.length) status = "loading";
    element("problem").hidden = true;
    show();
    showWaiting();
    inOrder(() => synchronize(card.lease.is_training ? sent.client_id : null));
  }

  /** Send answers, then fetch cards. */
  async function synchronize(feedbackFor = null) {
    if (!(await flush(feedbackFor))) return;
    try {
      const found = await source.next(CARDS);
      const waiting = source.outbox.answers.map((one) => one.lease);
      const known = queue.map((lease) => lease.token);
      queue.push(...found.leases.filter((lease) => !known.includes(lease.token) && !waiting.includes(lease.token)));
      status = queue.length ? "ok" : found.status;
      showProgress(found.progress);
      show();
      succeeded();
    } catch (problem) {
      failed(problem);
    }
  }

  /** Send the answers of the outbox; return whether all have left it, acknowledged or refused for good. */
  async function flush(feedbackFor) {
    let waiting = source.outbox.answers;
    const isNeeded = waiting.length > 0;
    let size = MAX_BATCH;
    while (waiting.length) {
      const batch = waiting.slice(0, size);
      try {
        const receipts = await source.send(batch);
        source.outbox.remove(batch.map((one) => one.client_id));
        waiting = waiting.slice(batch.length);
        const training = receipts.find((receipt) => receipt.client_id === feedbackFor && receipt.feedback);
        if (training) showFeedback(training);
      } catch (problem) {
        const refused = batch.find((one) => one.client_id === problem.refused);
        if (refused) {
          source.refused.add({ ...refused, reason: problem.message });
          source.outbox.remove([refused.client_id]);
          waiting = waiting.filter((one) => one !== refused);
        } else if (batch.length > 1 && problem.status === 413) {
          size = 1;
        } else {
          failed(problem);
          return false;
        }
      }
    }
    if (isNeeded) succeeded();
    return true;
  }

  function succeeded() {
    failure = null;
    retryMs = FIRST_RETRY_MS;
    clearTimeout(retryTimer);
    showWaiting();
  }

  /** Keep the answers, show what to do, and try again later. */
  function failed(problem) {
    failure = problem;
    clearTimeout(retryTimer);
    retryTimer = setTimeout(() => inOrder(() => synchronize()), retryMs * (0.5 + Math.random() / 2));
    retryMs = Math.min(2 * retryMs, MAX_RETRY_MS);
    showWaiting();
    if (!queue.length) {
      status = problem instanceof RequestFailed && !problem.isTemporary ? "stopped" : "offline";
      show();
    }
  }

  function retry() {
    if (failure) inOrder(() => synchronize());
  }

  async function undo() {
    const last = history[history.length - 1];
    const unsent = source.outbox.answers.find((one) => last && one.lease === last.token);
    if (unsent && failure) {
      source.outbox.remove([unsent.client_id]);
      history.pop();
      queue.unshift(last);
      show();
      showWaiting();
      return;
    }
    await inOrder(async () => {
      if (!(await flush(null))) return;
      try {
        const { leases } = await source.undo();
        history.pop();
        const tokens = leases.map((lease) => lease.token);
        queue = [...leases, ...queue.filter((lease) => !tokens.includes(lease.token))];
        element("problem").hidden = true;
        show();
        announce("The last answer is withdrawn.");
        await synchronize();
      } catch (problem) {
        if (problem.kind === "nothing-to-undo") announce("There is no answer to undo.");
        else if (!problem.isRefusal) failed(problem);
        else {
          element("problem").textContent = problem.message;
          element("problem").hidden = false;
        }
      }
    });
  }

  function showFeedback({ feedback, grade }) {
    element("feedback-verdict").textContent = feedback.is_correct ? "Correct" : "Not correct";
    element("feedback-document").textContent = titleOf(history[history.length - 1]);
    const own = grade === null ? "Cannot judge" : grade;
    const correct = asksPreferences ? "Correct answer" : "Correct grade";
    element("feedback-grade").textContent = `Your answer: ${own}. ${correct}: ${feedback.grade}.`;
    element("feedback-text").textContent = feedback.explanation || "";
    element("feedback").showModal();
  }

  // ---- Find -----------------------------------------------------------------------------------------------------------

  function openFind() {
    element("find").hidden = false;
    element("find-text").focus();
    element("find-text").select();
  }

  function findText(forward = true) {
    const card = cards[focused];
    if (!card) return;
    const text = element("find-text").value;
    if (card.find !== text) [card.find, card.foundPlace] = [text, -1];
    card.mark();
    const found = card.node.querySelectorAll("mark.found");
    element("find-count").textContent = text ? `${found.length} found` : "";
    if (!found.length) return;
    card.foundPlace = (card.foundPlace + (forward ? 1 : -1) + found.length) % found.length;
    found[card.foundPlace].classList.add("here");
    found[card.foundPlace].scrollIntoView({ block: "center" });
  }

  function closeFind() {
    element("find").hidden = true;
    element("find-text").value = "";
    cards.forEach((card) => {
      card.find = "";
      card.mark();
    });
    focusCard();
  }

  // ---- Keys -----------------------------------------------------------------------------------------------------------

  const keys = {
    u: () => answer(cards[focused], { kind: "cannot-judge" }),
    l: () => answer(cards[focused], { kind: "later" }),
    c: () => cards[focused].openComment(),
    ...(asksPreferences ? {} : { e: () => cards[focused].addEvidence() }),
    j: () => moveFocus(1),
    k: () => moveFocus(-1),
    "/": openFind,
  };

  function moveFocus(step) {
    focused = (focused + step + cards.length) % cards.length;
    focusCard();
    cards[focused].node.scrollIntoView({ block: "nearest" });
  }

  function press(event) {
    cards.forEach((card) => card.stopwatch.input());
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return;
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (isTyping) {
      if (event.key === "Escape") event.target.closest("#find") ? closeFind() : event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return; // a dialog has keys of its own
    if (event.key === " " && event.target.closest("button, a, summary")) return; // the key of the focused control
    const grade = config.grade_keys.indexOf(event.key);
    if (event.key === "?") element("help").showModal();
    else if (event.key === "g") element("guidelines").open = !element("guidelines").open;
    else if (event.key === "z") undo();
    else if (!cards.length) return;
    else if (grade >= 0) answer(cards[focused], { kind: "grade", grade });
    else if (Object.hasOwn(keys, event.key)) keys[event.key]();
    else return;
    event.preventDefault();
  }

  // ---- Start ----------------------------------------------------------------------------------------------------------

  document.addEventListener("keydown", press);
  for (const kind of ["pointerdown", "pointermove", "scroll", "wheel", "touchstart"]) {
    document.addEventListener(kind, () => cards.forEach((card) => card.stopwatch.input()), { passive: true, capture: true });
  }
  document.addEventListener("visibilitychange", () =>
    cards.forEach((card) => (document.hidden ? card.stopwatch.pause() : card.stopwatch.input())),
  );
  window.addEventListener("online", () => inOrder(() => synchronize()));
  window.addEventListener("focus", retry); // the person may have signed in in another tab
  window.addEventListener("beforeunload", (event) => {
    if (isAtRisk()) event.preventDefault();
  });
  element("retry").addEventListener("click", retry);
  element("save-waiting").addEventListener("click", () => saveAnswers(source.outbox.answers, config.assessor));
  element("save-refused").addEventListener("click", () => saveAnswers(source.refused.answers, config.assessor));
  element("forget-refused").addEventListener("click", () => {
    source.refused.remove(source.refused.answers.map((one) => one.client_id));
    showWaiting();
  });
  element("undo").addEventListener("click", undo);
  element("show-help").addEventListener("click", () => element("help").showModal());
  element("find-text").addEventListener("input", () => findText());
  element("find-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter") findText(!event.shiftKey);
  });
  element("find-close").addEventListener("click", closeFind);
  for (const dialog of document.querySelectorAll("dialog")) dialog.addEventListener("close", focusCard);

  const save = element("save");
  if (save && config.cards) {
    save.addEventListener("click", () => {
      const assessor = element("assessor").value.trim();
      if (!assessor) {
        element("assessor").focus();
        announce("Enter your name first.");
        return;
      }
      const tokens = config.cards.map((card) => card.token);
      saveAnswers(source.store.answers.filter((answer) => tokens.includes(answer.lease)), assessor);
    });
  }

  show();
  showWaiting();
  inOrder(() => synchronize());
})();
