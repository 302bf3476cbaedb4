// An approver does not follow sessions: the inbox has the calls that wait in all of them, and its stream the changes.
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { z } from 'zod';
import { answer, createSession, printTurn, send } from './everturn-client.ts';

const action = z.object({
  id: z.string(),
  session_id: z.string(),
  agent_name: z.string().nullable(),
  thread_id: z.string(),
  tool_call_id: z.string().nullable(),
  kind: z.string(),
  tool: z.object({ name: z.string().nullable() }),
  arguments: z.unknown(),
  status: z.string(),
});
const actionEvent = z.object({ type: z.string(), action });

const session = await createSession('demo');
// Opened first, so that no change is missed.
const { body: stream } = await send('/actions/stream');
if (!stream) throw new Error('the stream has no body');
await printTurn(
  await send(`/sessions/${session}/turns`, { input: [{ type: 'user.message', content: 'note: water the plants' }] }),
);
const events = stream.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
for await (const { data } of events) {
  const { type, action: changed } = actionEvent.parse(JSON.parse(data));
  // Sign-ins are actions, too: the owner opens their `auth_url`.
  if (changed.session_id !== session || changed.kind !== 'approval') continue;
  if (type !== 'action.created') {
    console.log(`[inbox] ${type}: ${changed.status}`);
    break;
  }
  console.log(`[inbox] ${changed.agent_name} wants ${changed.tool.name}(${JSON.stringify(changed.arguments)})`);
  const { thread_id, tool_call_id } = changed;
  const decision = { type: 'user.tool_approval', thread_id, tool_call_id, approval: { status: 'allow' } };
  const { state } = await printTurn(await answer(session, [decision]));
  console.log(`[turn] ${state?.status}`);
}
