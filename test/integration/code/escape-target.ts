import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import type { Wall } from '../../../src/features/code/kernel/wall.ts';
import { openSandbox, type TestSandbox } from '../../support/kernels.ts';

/** The targets of attempts: things of this machine that any user may use, so that only the wall protects them. */
export interface EscapeTarget {
  /** For the kernel, as JSON. */
  forKernel: string;
  /** The state of everything that attempts could change. */
  state: () => Promise<unknown>;
  remove: () => Promise<void>;
}

export async function openEscapeTarget(wall: Wall, sandbox: TestSandbox): Promise<EscapeTarget> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'everturn-escape-'));
  const place = (name: string) => path.join(folder, name);
  const abstract = path.basename(folder);
  const other = await openSandbox(wall);
  const files = ['secret', 'file', 'deletable', 'renamable', 'movable'];
  await Promise.all(files.map((name) => writeFile(place(name), name)));
  await mkdir(place('removable'));
  await writeFile(path.join(other.folders.workspace, 'theirs'), 'theirs');
  const web = createHttpServer((_, response) => response.end('reached'));
  const servers = [web, createServer((client) => client.end()), createServer((client) => client.end())];
  const [, onPath, onName] = servers;
  await Promise.all([
    listens(web, { port: 0, host: '127.0.0.1' }),
    listens(onPath, { path: place('socket') }),
    listens(onName, { path: `\0${abstract}` }),
  ]);
  await Promise.all([...files, 'socket', 'removable', '.'].map((name) => chmod(place(name), 0o777)));
  const victim = spawn('sleep', ['3600'], { detached: true, stdio: 'ignore' });
  const address = web.address();
  const interpreterFile = path.join(path.dirname(path.dirname(wall.python)), 'pyvenv.cfg');
  const isSandbox = wall.isolation === 'sandbox';
  return {
    forKernel: JSON.stringify({
      folder,
      ...Object.fromEntries(files.map((name) => [name, place(name)])),
      removable: place('removable'),
      socket: place('socket'),
      abstract,
      port: typeof address === 'object' ? address?.port : undefined,
      other: other.root,
      tools: isSandbox ? '/tools' : sandbox.folders.tools,
      skills: isSandbox ? '/skills' : sandbox.folders.skills,
      interpreterFile,
      host: process.pid,
      environment: 'PATH=',
      victim: victim.pid,
      hasNoWall: wall.isolation === 'none',
    }),
    state: async () => ({
      names: (await readdir(folder)).sort(),
      file: await readFile(place('file'), 'utf8'),
      properties: properties(await stat(place('file'))),
      interpreter: properties(await stat(interpreterFile)),
      other: (await readdir(other.root, { recursive: true })).sort(),
      tools: await readdir(sandbox.folders.tools),
      skills: await readdir(sandbox.folders.skills),
      victim: victim.exitCode ?? victim.signalCode,
    }),
    remove: async () => {
      for (const server of servers) server.close();
      victim.kill('SIGKILL');
      await other.remove();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function listens(server: Server | undefined, options: { port?: number; host?: string; path?: string }) {
  if (server) await once(server.listen(options), 'listening');
}

function properties({ mode, uid, gid, mtimeMs }: { mode: number; uid: number; gid: number; mtimeMs: number }) {
  return { mode, uid, gid, mtimeMs };
}
