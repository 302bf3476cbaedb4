import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { killAtEnd, killUsersAtEnd } from '../test/support/reaper.ts';

/** What a measurement needs besides Everturn: a folder, a model and an MCP server. */
export interface Setting {
  /** All files are written here. */
  folder: string;
  /** Names the model and the tools that respond immediately. */
  env: Record<string, string>;
  modelUrl: string;
  mcpUrl: string;
  /** Run at the end, the last one first. */
  cleanup: (() => Promise<unknown>)[];
  /** Reports progress. */
  say: (line: string) => void;
}

/** Starts the model and the MCP server. `end` stops both, and runs all that `cleanup` contains by then. */
export async function prepare(say: Setting['say']): Promise<{ setting: Setting; end: () => Promise<void> }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-bench-'));
  // Temporal outlives this process if this process is killed.
  killUsersAtEnd(folder);
  const cleanup: Setting['cleanup'] = [() => rm(folder, { recursive: true, force: true })];
  const end = async (): Promise<void> => {
    for (const step of cleanup.toReversed()) await step();
  };
  try {
    const { model, mcp } = await startBeside<{ model: string; mcp: string }>('instant-servers.ts', [], cleanup);
    const mcpFile = path.join(folder, 'mcp.json');
    const program = { command: process.execPath, args: [scriptOf('stdio-server.ts')] };
    await writeFile(mcpFile, JSON.stringify({ servers: { bench: { url: mcp }, program } }));
    const env = { EVERTURN_MCP_SERVERS: mcpFile, OPENAI_API_KEY: 'none', OPENAI_BASE_URL: model };
    return { setting: { folder, env, modelUrl: model, mcpUrl: mcp, cleanup, say }, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** Starts a script of this folder in its own process. Returns the JSON of its first line. */
export async function startBeside<T>(name: string, args: string[], cleanup: Setting['cleanup']): Promise<T> {
  const child = killAtEnd(spawn(process.execPath, [scriptOf(name), ...args], { stdio: ['ignore', 'pipe', 'inherit'] }));
  cleanup.push(async () => {
    child.kill();
    await once(child, 'exit');
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return JSON.parse(line) as T;
}

function scriptOf(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

/** An agent without Everturn: see `plain-loop.ts`. */
export function startPlainLoop({ modelUrl, mcpUrl, cleanup }: Setting, model: string): Promise<{ url: string }> {
  return startBeside('plain-loop.ts', [modelUrl, mcpUrl, model], cleanup);
}
