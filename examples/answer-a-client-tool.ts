// The model asks the user a question, which the client answers like a call of a client tool.
import { answer, createSession, printTurn, send } from './everturn-client.ts';

const session = await createSession('demo');
const first = await printTurn(
  await send(`/sessions/${session}/turns`, { input: [{ type: 'user.message', content: 'ask me something' }] }),
);
const answers = (first.state?.required_actions ?? []).flatMap(({ thread_id, tool_calls }) =>
  tool_calls.map(({ id }) => ({ type: 'user.tool_response', thread_id, tool_call_id: id, content: 'green' })),
);
const { state } = await printTurn(await answer(session, answers));
console.log(`[turn] ${state?.status}`);
