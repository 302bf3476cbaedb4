import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { McpRegistry } from '../mcp/registry.ts';
import { announceDemo, followDemo } from './demo-address.ts';
import { eventually } from '../../test/support/eventually.ts';

test('a kernel host has the demo of the server that has started it, and of the next one', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-demo-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const registry = new McpRegistry();
  const demo = () => registry.resolve({ type: 'truefoundry-mcp-registry', name: 'demo' });
  await announceDemo(folder, 'http://127.0.0.1:1234/mcp');
  onTestFinished(await followDemo(folder, registry));
  expect(demo()).toMatchObject({ url: 'http://127.0.0.1:1234/mcp' });
  await announceDemo(folder, 'http://127.0.0.1:5678/mcp');
  await eventually(() => expect(demo()).toMatchObject({ url: 'http://127.0.0.1:5678/mcp' }));
  // A server with keys has none.
  await announceDemo(folder, undefined);
  const other = new McpRegistry();
  onTestFinished(await followDemo(folder, other));
  expect(other.names).toEqual([]);
});
