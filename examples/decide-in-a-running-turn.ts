// The agent waits for decisions: its turn and its stream stay open while a tool call needs an approval, which arrives by
// a request of its own, possibly from another client. This one edits the arguments: the call runs with the edited ones.
import { agentSpec, createDraft, events, send } from './everturn-client.ts';

const spec = await agentSpec('demo');
const session = await createDraft({
  ...spec,
  config: {
    pause: 'wait',
    decision_policies: [{ match: { tool: '*' }, decision: 'ask', expires_in_seconds: 3600, on_expiry: 'deny' }],
  },
});
const stream = await send(`/sessions/${session}/turns`, {
  input: [{ type: 'user.message', content: 'note: water the plants' }],
});
for await (const event of events(stream)) {
  const edited = event.type === 'tool.response' ? ` ran with ${JSON.stringify(event.arguments)}` : '';
  console.log(`[${event.type}]${edited}`);
  if (event.type !== 'tool.approval_required') continue;
  const input = (event.tool_calls ?? []).map(({ id }) => ({
    type: 'user.tool_approval',
    thread_id: event.thread_id,
    tool_call_id: id,
    approval: { status: 'allow', arguments: { note: 'water the plants, and the tree' } },
  }));
  const response = await send(`/sessions/${session}/actions`, { input });
  console.log(`[approval] ${await response.text()}`);
}
