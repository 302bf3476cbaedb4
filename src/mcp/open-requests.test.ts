import { expect, test } from 'vitest';
import { OpenRequests } from './open-requests.ts';

const error = new Error('its answer is larger than 4 MiB');

function start(...ids: (string | number)[]) {
  const unread: (string | number)[] = [];
  const requests = new OpenRequests((id) => void unread.push(id));
  const send = (id: string | number) => requests.sent({ jsonrpc: '2.0', id, method: 'tools/call' });
  for (const id of ids) send(id);
  const receive = (id: string | number) => requests.received({ jsonrpc: '2.0', id, result: {} });
  const cancel = (requestId: string | number) =>
    requests.sent({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
  const cut = (head: string, tail = '') => requests.cut({ head, tail, error });
  return { unread, send, receive, cancel, cut, invalid: (line: string) => requests.invalid(line) };
}

test.each([
  ['{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"', '","id":1}]}}', 2],
  ['{ "id": 2, "jsonrpc": "2.0", "result": {', '', 2],
  ['{"id":2,"result":{', '', 2],
  ['{"jsonrpc":"2.0","id":"a\\"b","error":{', '', 'a"b'],
  ['{"result":{"content":[{"text":"', '"}]},"jsonrpc":"2.0","id":2}', 2],
  ['{"result":{"content":[{"text":"', '"}]},"id":2,"jsonrpc":"2.0"}\r', 2],
  ['{"jsonrpc":"2.0","result":{"a":{', '"id":1}}}', undefined],
  ['{"jsonrpc":"2.0","id":9,"result":{', '', undefined],
  ['{"jsonrpc":"2.0","method":"notifications/message","params":{', '},"id":2}', undefined],
  ['{"method":"sampling/createMessage","params":{', '},"jsonrpc":"2.0","id":2}', undefined],
  ['{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{', '', undefined],
  ['Reading the files …', '{"result":{},"id":2}', undefined],
  ['{"level":"info","items":[{', '}],"id":2}', undefined],
])('%s…%s is the answer to %s', (head, tail, id) => {
  const { cut, unread } = start(1, 2, 'a"b');
  cut(head, tail);
  cut(head, tail);
  expect(unread).toEqual(id === undefined ? [] : [id]);
});

const NO_ID = '{"result":{';

test('without an id it is that of the only request that can be meant', () => {
  const { cut, unread, send, receive, cancel } = start(1, 2, 3);
  cut(NO_ID);
  send(4);
  receive(2);
  expect(unread).toEqual([]);
  cancel(1);
  expect(unread).toEqual([3]);
  cut(NO_ID);
  expect(unread).toEqual([3, 4]);
  cut(NO_ID);
  expect(unread).toHaveLength(2);
});

test('without an id it is dropped while no request is open', () => {
  const { cut, unread, send } = start();
  cut(NO_ID);
  send(1);
  send(2);
  cut(NO_ID);
  expect(unread).toEqual([]);
});

test('a line of a log is no answer', () => {
  const { cut, unread } = start(1);
  cut('{"level":"info","items":[{');
  expect(unread).toEqual([]);
});

test('as many as there are open requests are those of all of them', () => {
  const { cut, unread } = start(1, 2);
  cut(NO_ID);
  cut(NO_ID);
  expect(unread).toEqual([1, 2]);
});

test.each([
  ['{"jsonrpc":"2.0","id":2,"result":7}', 2],
  ['{"jsonrpc":"2.0","id":"a\\"b","result":{"_meta":7}}', 'a"b'],
  ['{"id":2}', 2],
  ['{"jsonrpc":"2.0","id":9,"result":7}', undefined],
  ['{"jsonrpc":"2.0","id":2,"method":7}', undefined],
  ['{"jsonrpc":"2.0","id":[2],"result":7}', undefined],
  ['[{"id":2}]', undefined],
  ['null', undefined],
  ['listening …', undefined],
])('%s, which is not valid, answers %s', (line, id) => {
  const { invalid, cut, unread } = start(1, 2, 'a"b');
  expect(invalid(line)).toBe(id);
  expect(invalid(line)).toBe(undefined);
  for (let i = 0; i < 3; i += 1) cut(NO_ID);
  expect(unread).toHaveLength(id === undefined ? 3 : 2);
});
