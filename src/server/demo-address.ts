import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { unwatchFile, watchFile } from 'node:fs';
import path from 'node:path';
import { DEMO } from '../demo/demo-agent.ts';
import type { McpRegistry } from '../mcp/registry.ts';

/** How often the host checks whether the server was started again, in milliseconds. */
const WATCH_MS = 500;

/** The file with the URL of the demo's MCP server, for the kernel host of the data folder. */
function demoAddressFile(dataDir: string): string {
  return path.join(dataDir, 'demo-mcp-server');
}

/** Writes down for the kernel host where the demo's MCP server listens; undefined: there is none. */
export async function announceDemo(dataDir: string, url: string | undefined): Promise<void> {
  const file = demoAddressFile(dataDir);
  if (url === undefined) {
    await rm(file, { force: true });
    return;
  }
  await writeFile(`${file}.part`, url);
  await rename(`${file}.part`, file);
}

/**
 * Registers the demo's MCP server in the kernel host, which outlives the server: the next one has it under another port.
 * Returns the function that ends this.
 */
export async function followDemo(dataDir: string, registry: Pick<McpRegistry, 'add'>): Promise<() => void> {
  const file = demoAddressFile(dataDir);
  const read = async (): Promise<void> => {
    const url = await readFile(file, 'utf8').catch(() => undefined);
    if (url !== undefined) registry.add(DEMO, { url });
  };
  watchFile(file, { interval: WATCH_MS, persistent: false }, () => void read());
  await read();
  return () => unwatchFile(file);
}
