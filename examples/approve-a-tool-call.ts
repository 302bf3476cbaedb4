// The model calls a tool that writes. The turn ends, and the decision starts the next one.
import { answer, createSession, printTurn, send } from './everturn-client.ts';

const session = await createSession('demo');
const first = await printTurn(
  await send(`/sessions/${session}/turns`, {
    input: [{ type: 'user.message', content: 'note: water the plants' }],
  }),
);
const decisions = (first.state?.required_actions ?? []).flatMap(({ thread_id, tool_calls }) =>
  tool_calls.map(({ id }) => ({
    type: 'user.tool_approval',
    thread_id,
    tool_call_id: id,
    approval: { status: 'allow' },
  })),
);
console.log(`[approval] allowing ${decisions.length} call(s)`);
const { state } = await printTurn(await answer(session, decisions));
console.log(`[turn] ${state?.status}`);
