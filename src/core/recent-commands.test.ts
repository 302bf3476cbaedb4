import { expect, test } from 'vitest';
import { RecentCommands } from './recent-commands.ts';
import { subjectNamed } from './subject.ts';
import type { AnswerCommand } from './turn-command.ts';

/** The results of calls. */
function command(...ids: string[]): AnswerCommand {
  const who = { subject: subjectNamed('ann'), roles: [], mayDecide: true, mayRespond: true };
  const result = { type: 'user.tool_response', threadId: 'main', content: '' } as const;
  return { ...who, type: 'answer', id: 'req_1', answers: ids.map((toolCallId) => ({ ...result, toolCallId })) };
}

test('the last answers are kept, as many as one request may have', () => {
  const given = new RecentCommands();
  const [first = [], last = []] = ['a', 'b'].map((name) => Array.from({ length: 2_000 }, (_, i) => `${name}${i}`));
  for (const ids of [first, last]) given.add(command(...ids));
  const next = new RecentCommands(given.state);
  const isKnown = (...ids: string[]) => next.has(command(...ids));
  expect([isKnown(...last), isKnown(...first.slice(-50)), isKnown(first[1_949] ?? '')]).toEqual([true, true, false]);
});
