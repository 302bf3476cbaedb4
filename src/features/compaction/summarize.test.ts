import { expect, test } from 'vitest';
import { userText } from '../../core/transcript.ts';
import { ModelError } from '../../models/model-error.ts';
import type { ModelRequest } from '../../models/provider.ts';
import type { AskModel } from '../../agents/model-call-part.ts';
import { summarize } from './summarize.ts';

const base: ModelRequest = {
  model: 'm',
  params: { max_tokens: 10, temperature: 0.5, parallel_tool_calls: false },
  options: { seed: 7 },
  system: 'instructions',
  instructionsLength: 12,
  skillsLength: 0,
  transcript: [],
  tools: [{ name: 't', description: '', parameters: {} }],
  toolChoice: 'required',
  webSearch: {},
  responseFormat: { type: 'json_object' },
  fileContent: () => Promise.resolve(''),
};

/** The prompts of the requests. */
async function prompts(
  text: string,
  partTokens: number,
  ask: AskModel = () => Promise.resolve('S'),
): Promise<string[]> {
  const asked: string[] = [];
  await summarize([userText(text)], {
    base,
    partTokens,
    ask: (request) => {
      const { transcript: _, system: __, fileContent: ___, ...rest } = request;
      expect(rest).toEqual({ model: 'm', params: {}, instructionsLength: 0, skillsLength: 0, tools: [] });
      const [item] = request.transcript;
      const [part] = item?.role === 'user' ? item.content : [];
      asked.push(part?.type === 'text' ? part.text : '');
      return ask(request);
    },
  });
  return asked;
}

test('a conversation that fits is summarized at once', async () => {
  expect(await prompts('hello', 10_000)).toEqual(['<conversation>\nUser: hello\n</conversation>']);
});

test('a longer one is summarized in parts, each with the summary of those before', async () => {
  const asked = await prompts('x'.repeat(10_000), 1_000);
  expect(asked).toHaveLength(3);
  expect(asked[1]).toMatch(/^The summary of what came before:\n\nS\n[^]*<conversation>\nx{4000}\n/);
});

test('a conversation of any length takes a limited number of requests', async () => {
  const items = Array.from({ length: 100 }, () => userText('x'.repeat(30_000)));
  let count = 0;
  await summarize(items, { base, partTokens: 1_000, ask: () => Promise.resolve(`S${count++}`) });
  expect(count).toBe(8);
});

test('the parts are halved if the model rejects one as too long, down to a size that any model takes', async () => {
  const tooLong = new ModelError('bad_request', 'no', { isTooLong: true });
  const rejectAbove =
    (length: number): AskModel =>
    ({ transcript: [item] }) => {
      const [part] = item?.role === 'user' ? item.content : [];
      return part?.type === 'text' && part.text.length > length ? Promise.reject(tooLong) : Promise.resolve('S');
    };
  const asked = await prompts('x'.repeat(10_000), 2_000, rejectAbove(5_000));
  expect(asked.length).toBeGreaterThan(2);
  // A window of 2,000 tokens that is not configured: the parts begin at 50,000.
  const small = await prompts('x'.repeat(300_000), 50_000, rejectAbove(8_000));
  expect(small.at(-1)?.length).toBeLessThan(8_000);
  await expect(prompts('x'.repeat(10_000), 2_000, rejectAbove(10))).rejects.toBe(tooLong);
});

test('any other failure is a failure of the call', async () => {
  await expect(prompts('x', 1_000, () => Promise.reject(new Error('down')))).rejects.toThrow('down');
});
