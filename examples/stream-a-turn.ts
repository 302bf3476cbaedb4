// Sends a message and prints the reply as it streams: npx node examples/stream-a-turn.ts "show my notes"
import { createSession, printTurn, send } from './everturn-client.ts';

const session = await createSession('demo');
const input = [{ type: 'user.message', content: process.argv[2] ?? 'show my notes' }];
const { state } = await printTurn(await send(`/sessions/${session}/turns`, { input }));
console.log(`[turn] ${state?.status}`);
