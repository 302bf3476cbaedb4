// An MCP server asks the user in a form while its tool runs, and the call continues with the answer.
import { answer, createSession, printTurn, send } from './everturn-client.ts';

const session = await createSession('demo');
const first = await printTurn(
  await send(`/sessions/${session}/turns`, { input: [{ type: 'user.message', content: 'forget some notes' }] }),
);
const answers = (first.state?.required_actions ?? []).flatMap(({ thread_id, tool_calls }) =>
  tool_calls.flatMap(({ id, elicitation }) => {
    if (!elicitation) return [];
    console.log(`[question] ${elicitation.message} ${JSON.stringify(elicitation.requested_schema)}`);
    const content = JSON.stringify({ action: 'accept', content: { word: 'script' } });
    return [{ type: 'user.tool_response', thread_id, tool_call_id: id, content }];
  }),
);
const { state } = await printTurn(await answer(session, answers));
console.log(`[turn] ${state?.status}`);
