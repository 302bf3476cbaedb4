import { expect, test } from 'vitest';
import { spanIdOf, turnContext } from './trace-context.ts';

const TURN = 'turn_01m80gr3nvzcagq9avex1a3eyz';
const TRACE = '0af7651916cd43dd8448eb211c80319c';
const VALID = `00-${TRACE}-b7ad6b7169203331-01`;

test('the span of a turn derives from its id, and keeps the trace, its flags and its state', () => {
  expect(turnContext({ traceparent: VALID, tracestate: 'a=b' }, TURN)).toEqual({
    traceparent: `00-${TRACE}-${spanIdOf(TURN)}-01`,
    tracestate: 'a=b',
  });
  expect(spanIdOf(`turn_${'0'.repeat(25)}1`)).toBe('0000000000000001');
  // The first of the thirteen letters has one bit of the 64 more than an id of a span has.
  expect(spanIdOf(`turn_${'z'.repeat(26)}`)).toBe('f'.repeat(16));
});

test('what is not W3C Trace Context has no span', () => {
  const wrong = [
    '',
    'none',
    `01-${VALID.slice(3)}`,
    ` ${VALID}`,
    `${VALID}0`,
    VALID.replace(TRACE, TRACE.slice(1)),
    VALID.replace(TRACE, TRACE.replace('f', 'g')),
    VALID.replace('b7', 'g7'),
    VALID.replace('b7', 'b'),
    VALID.replace(/01$/, '1'),
    VALID.replace(/01$/, 'g1'),
  ];
  expect(wrong.map((traceparent) => turnContext({ traceparent }, TURN))).toEqual(wrong.map(() => undefined));
});
