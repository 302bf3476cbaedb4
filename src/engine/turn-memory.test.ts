import { expect, test } from 'vitest';
import type { ModelMessage } from '../core/records/message.ts';
import { TurnMemory, type ReadConversation } from './turn-memory.ts';

const TEXT = 'x'.repeat(10_000);

const message: ModelMessage = {
  kind: 'model.message',
  id: 'msg_0',
  at: '2026-11-21T08:00:00.000Z',
  threadId: 'main',
  content: TEXT,
  refusal: '',
  reasoning: '',
  toolCalls: [],
  finishReason: 'stop',
};

function memory(): TurnMemory {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- nothing is read
  return new TurnMemory({} as ConstructorParameters<typeof TurnMemory>[0]);
}

test('the memory of a turn counts all that it has: results, messages of others and the given conversation', async () => {
  const turn = memory();
  const sizes = [turn.characters];
  turn.add('own', [message]);
  sizes.push(turn.characters);
  await turn.messages.get('other', () => Promise.resolve(message));
  sizes.push(turn.characters);
  await turn.given.get('blob', () => Promise.resolve({ given: { items: [] }, characters: TEXT.length }));
  sizes.push(turn.characters);
  turn.run('run_1');
  sizes.push(turn.characters);
  expect(sizes.map((size) => Math.floor(size / TEXT.length))).toEqual([0, 1, 2, 3, 3]);
  expect(sizes[4]).toBeGreaterThan(sizes[3]!);
});

test('concurrent readers share a read, and one that fails or finds nothing is repeated', async () => {
  const turn = memory();
  const conversation: ReadConversation = { given: { items: [] }, characters: 1 };
  const results = [() => Promise.reject(new Error('away')), () => Promise.resolve(undefined)];
  let reads = 0;
  const read = (): Promise<ReadConversation | undefined> => {
    reads += 1;
    return (results.shift() ?? (() => Promise.resolve(conversation)))();
  };
  const both = () => Promise.allSettled([turn.given.get('blob', read), turn.given.get('blob', read)]);
  expect((await both()).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(await both()).toMatchObject([{ value: undefined }, { value: undefined }]);
  for (let i = 0; i < 2; i++) expect(await both()).toMatchObject([{ value: conversation }, { value: conversation }]);
  expect(reads).toBe(3);
});

test('a turn has the records of one run in memory, and the results that it has produced in any', () => {
  const turn = memory();
  turn.add('stamp', [message]);
  const first = turn.run('run_1');
  expect(turn.run('run_1')).toBe(first);
  expect(turn.known('run_1')).toBe(first);
  expect(turn.known('run_2')).toBeUndefined();
  turn.run('run_2');
  expect(turn.known('run_1')).toBeUndefined();
  expect(turn.result('stamp')).toEqual([message]);
});
