import { expect, test } from 'vitest';
import { toolResultsBody } from '../agents-v2/wire/messages.ts';
import { ApiError } from './errors.ts';
import { parsePart } from './request.ts';

/** The place and the kind of the first problem of a body. */
function problemOf(body: unknown): unknown {
  try {
    return parsePart(toolResultsBody, body, 'body');
  } catch (error) {
    const [issue] = error instanceof ApiError ? error.issues : [];
    return [issue?.path.join('.'), issue?.code];
  }
}

const request = { tool_name: 't' };

test.each([
  [{}, 'tool_req', 'missing'],
  [{ kind: 'tool_result', result: 1 }, 'tool_req', 'missing'],
  [{ kind: 'error_event', error: 'x' }, 'origin', 'missing'],
  [{ kind: 'other', tool_req: request }, 'kind', 'invalid_value'],
  [{ tool_req: { tool_name: 5 } }, 'tool_req.tool_name', 'invalid_type'],
  [{ results: [{ kind: 'tool_result', tool_req: request }] }, 'type', 'missing'],
  [{ type: 'batch', results: [{ kind: 'tool_result' }] }, 'results.0.tool_req', 'missing'],
])('the error of %j names the place in the nearest of several forms', (body, path, code) => {
  expect(problemOf(body)).toEqual([path, code]);
});

test('an unknown key is named with its place, and with the nearest known key', () => {
  const body = { type: 'batch', results: [{ kind: 'tool_result', tool_req: { tool_name: 't', arg: {} } }] };
  expect(() => parsePart(toolResultsBody, body, 'body')).toThrow(
    'results.0.tool_req: unknown key "arg": do you mean "args"?',
  );
  expect(() => parsePart(toolResultsBody, { ...body, typ: 1 }, 'body')).toThrow(
    'unknown key "typ": do you mean "type"?',
  );
});
