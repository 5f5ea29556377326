// The designer without a server: the same code, compiled into this file, answers.

/** Asks the module; texts go in and come out byte by byte. */
function askModule({ put, ask, take, clear }) {
  return async (name, question) => {
    clear();
    const text = `${name}\0${question === undefined ? "" : JSON.stringify(question)}`;
    for (const byte of new TextEncoder().encode(text)) put(byte);
    const bytes = new Uint8Array(ask());
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = take(at);
    const answer = JSON.parse(new TextDecoder().decode(bytes));
    if (!answer.error) return answer;
    throw Object.assign(new Error(answer.error.text), { field: answer.error.field });
  };
}

async function startAlone() {
  const text = byId("module").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes);
  await startDesigner(askModule(instance.exports));
}

startAlone().catch((error) => {
  byId("verdict").className = "bad";
  byId("verdict").textContent = error.message;
});
