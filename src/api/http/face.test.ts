import { expect, test } from 'vitest';
import { z } from 'zod';
import { ApiError, errorKinds, standardErrors } from './errors.ts';
import { faceFinder, prefixesOf, type Face } from './face.ts';
import { accessOf, routesOfFace, type FaceFacts } from './route.ts';

const FACTS = {
  prefixes: { '/x': 'key', '/x/docs': 'address', '/open': 'all' },
  tags: { Things: 'what there is' },
  parameters: { thing_id: z.string() },
  errorKinds: errorKinds({ thing_not_found: [404, 'there is no such thing'] }),
} as const satisfies FaceFacts;

const route = routesOfFace(FACTS)('Things');

function faceOf(name: string, prefixes: FaceFacts['prefixes']): Face {
  return { ...FACTS, name, prefixes, errors: standardErrors, routes: () => [] };
}

test('the face of a path is the one with the longest prefix, in whole segments', () => {
  const find = faceFinder([
    faceOf('things', { '/v1': 'key' }),
    faceOf('runs', { '/v1/runs': 'key', '/v1/agents/:agent_name/runs': 'key' }),
  ]);
  const names = ['/v1', '/v1/runs', '/v1/runs/r1', '/v1/agents/a/runs', '/v1/agents/runs', '/v1/runsome', '/v10', '/'];
  expect(names.map((path) => find(path)?.name)).toEqual([
    'things',
    'runs',
    'runs',
    'runs',
    'things',
    'things',
    undefined,
    undefined,
  ]);
});

test('the longest prefix decides how a path is admitted; any other needs a key', () => {
  const paths = ['/x', '/x/y', '/x/docs', '/x/docs/a', '/xy', '/open', '/open/a', '/other'];
  expect(paths.map((path) => accessOf(FACTS, path))).toEqual([
    'key',
    'key',
    'address',
    'address',
    'key',
    'all',
    'all',
    'key',
  ]);
  expect(prefixesOf([faceOf('x', FACTS.prefixes)], 'key')).toEqual(['/x']);
});

test('a route names what its face declares; anything else is a type error', () => {
  const declared = { id: 'getThing', summary: 'A thing', errors: ['thing_not_found'] } as const;
  const nothing = { ...declared, handler: () => undefined };
  route('get', '/x/:thing_id', {
    ...declared,
    handler: ({ params, caller }) => void [params.thing_id, caller.roles],
  });
  route('get', '/open/:thing_id', {
    ...declared,
    // @ts-expect-error -- without a key there is no caller
    handler: ({ caller }) => void caller.roles,
  });
  // @ts-expect-error -- no face has this parameter
  route('get', '/x/:other_id', nothing);
  // @ts-expect-error -- it is not below a prefix
  route('get', '/other/:thing_id', nothing);
  // @ts-expect-error -- no face has this tag
  routesOfFace(FACTS)('Others');
  // @ts-expect-error -- no table has this code
  route('get', '/x', { ...nothing, errors: ['other_not_found'] });
  // @ts-expect-error -- no table has this code
  expect(() => new ApiError('thing_not_found', 'there is none')).toThrow(TypeError);
  // @ts-expect-error -- it has no status
  errorKinds({ other_not_found: ['there is no other'] });
});

test('an error of a face has the status and the code of its kind', () => {
  const { status, body } = standardErrors.toResponse(
    new ApiError(FACTS.errorKinds.thing_not_found, 'there is no thing x'),
  );
  expect([status, body]).toEqual([
    404,
    { error: { message: 'there is no thing x', type: 'not_found_error', code: 'thing_not_found' } },
  ]);
});
