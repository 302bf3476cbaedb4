import { expect, test } from 'vitest';
import { userText } from '../core/transcript.ts';
import type { ModelChunk } from '../models/provider.ts';
import type { ModelCallPart, PreparableCall } from './model-call-part.ts';
import { prepareModelCall, type ModelCallSources } from './prepare-model-call.ts';

const owner = { subjectId: 'ann', draftRoles: null };
const CALL = { specHash: 'h', turnId: 'turn_1', sessionId: 'ses_1', owner, threadId: 'main' };

test('an unreadable conversation is an error at once, even while the agent is still being loaded', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the catalog is used
  const sources = { catalog: { agents: { spec: () => new Promise(() => undefined) } } } as unknown as ModelCallSources;
  const records = Promise.reject(new Error('the archive is unavailable'));
  const prepared = prepareModelCall(sources, CALL, records, new AbortController().signal);
  await expect(prepared).rejects.toThrow('the archive is unavailable');
});

test('the parts of features apply in their order: to the agent, the prompt, the conversation, the servers and the model', async () => {
  const asked: string[] = [];
  const stream = async function* (): AsyncGenerator<ModelChunk> {
    yield await Promise.resolve({ content: 'Hi.' });
  };
  const partOf = (name: string): ModelCallPart => ({
    agent: (spec) => Promise.resolve({ ...spec, instructions: `${spec.instructions} ${name}` }),
    prompt: () => Promise.resolve({ skills: `skill ${name}`, notes: [`note ${name}`] }),
    conversation: (items) => ({ items: [...items, { item: userText(name), at: items.length }] }),
    signIns: ({ unavailable }) =>
      Promise.resolve({ signIns: [], unavailable: [...unavailable, { server: name, reason: 'is down' }] }),
    provider: (provider) => ({
      stream: (...request) => {
        asked.push(name);
        return provider.stream(...request);
      },
    }),
    compaction: () => () => Promise.reject(new Error(name)),
  });
  const target = { model: 'm', provider: { stream } };
  const sources = {
    catalog: { agents: { spec: () => Promise.resolve({ model: { name: 'm' }, instructions: 'I' }) } },
    toolsets: { load: () => Promise.resolve({ tools: new Map(), servers: [], unavailable: [] }) },
    models: { resolve: () => target },
    modelCallParts: [{}, partOf('one'), partOf('two')],
  };
  const prepare = (more: Partial<PreparableCall>) =>
    prepareModelCall(
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what an agent without tools needs
      sources as unknown as ModelCallSources,
      { ...CALL, ...more },
      Promise.resolve([]),
      new AbortController().signal,
    );
  const { request, provider, compaction, toolset, conversation } = await prepare({ mayWait: true });
  expect(request.system.split('\n\n').filter((text) => !text.startsWith('The tools of'))).toEqual([
    'I one two',
    'skill one',
    'skill two',
    'note one',
    'note two',
  ]);
  expect(request.skillsLength).toBe('skill one\n\nskill two'.length);
  expect(request.transcript).toEqual([userText('one'), userText('two')]);
  expect(conversation).toEqual([]);
  expect(toolset.unavailable.map(({ server }) => server)).toEqual(['one', 'two']);
  for await (const { content } of provider.stream(request, new AbortController().signal)) asked.push(content ?? '');
  expect(asked).toEqual(['two', 'one', 'Hi.']);
  await expect(compaction?.(() => Promise.resolve(''))).rejects.toThrow('one');
  // Neither a call that was begun ahead nor a forced one waits for sign-ins.
  expect((await prepare({})).toolset.unavailable).toEqual([]);
  expect((await prepare({ mayWait: true, isForced: true })).toolset.unavailable).toEqual([]);
});
