// A run whose tool this program runs: the run pauses for the result, and continues with it. Nothing but fetch.

/** The fields of a run that the example uses; `docs/api.md` has all fields. */
interface Run {
  id: string;
  status: string;
  content: { type: string; text?: string }[];
  output: { type: string }[];
  required_action?: { tool_calls: { tool_call_id: string; tool_name: string; args: Record<string, unknown> }[] };
}

const notes = ['water the plants', 'buy milk'];
const tools: Record<string, (args: Record<string, unknown>) => string> = {
  search_notes: ({ text = '' }) => notes.filter((note) => note.includes(String(text))).join(', '),
};

const url = process.env['EVERTURN_URL'] ?? 'http://127.0.0.1:8080';
const key = process.env['EVERTURN_KEY'];

/** With an idempotency key a request can be repeated: it starts one run, and each answer is given once. */
async function post(path: string, body: object): Promise<Run> {
  const headers = {
    'content-type': 'application/json',
    'idempotency-key': crypto.randomUUID(),
    ...(key !== undefined && { authorization: `Bearer ${key}` }),
  };
  const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await response.text());
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- documented in docs/api.md
  return response.json() as Promise<Run>;
}

/** A tool that throws ends the run: the error has the message, and the model is not shown it. */
function runTool(name: string, args: Record<string, unknown>): { content: string } | { error: { message: string } } {
  try {
    const tool = tools[name];
    if (!tool) throw new Error(`there is no tool ${name}`);
    return { content: tool(args) };
  } catch (error) {
    return { error: { message: String(error) } };
  }
}

const parameters = { type: 'object', properties: { text: { type: 'string' } } };
const input = [{ type: 'message', role: 'user', content: process.argv[2] ?? 'show my notes' }];
let run = await post('/v1/runs', {
  agent: {
    model: 'gpt-5-mini',
    tools: [{ name: 'search_notes', description: 'Finds notes with a text.', parameters }],
  },
  input,
});
while (run.status === 'requires_action') {
  const results = (run.required_action?.tool_calls ?? []).map(({ tool_call_id, tool_name, args }) => {
    console.log(`[run] paused for ${tool_name}(${JSON.stringify(args)})`);
    return { tool_call_id, ...runTool(tool_name, args) };
  });
  run = await post(`/v1/runs/${run.id}/resume`, { tool_results: results });
}
console.log(run.content.map(({ text = '' }) => text).join(''));
// The input of the next run is that of this one, its output, and a message.
console.log(`[run] ${run.status}, items: ${[...input, ...run.output].map(({ type }) => type).join(', ')}`);
