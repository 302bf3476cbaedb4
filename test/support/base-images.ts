import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { chmod, copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { temporalPrograms } from '../../deploy/temporal/programs.ts';
import { loadConfig } from '../../src/config.ts';
import { IN_MOUNT_NAMESPACE } from './mount-namespace.ts';

const run = promisify(execFile);

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const DEBIAN = 'localhost/debian-bookworm';

/**
 * Images that stand for those that the Dockerfile and the Compose file start from. They are made of Debian's packages, and
 * Node and npm as packages, since no image can be downloaded where the tests run. What the others have in addition
 * (locales, gosu, the further steps of their entrypoints) is not used.
 */
interface BaseImage {
  tag: string;
  containerfile: string[];
  /** Puts the files that it copies into a folder. */
  prepare?: (folder: string) => Promise<void>;
}

const CA_FILE = process.env['NODE_EXTRA_CA_CERTS'];
const CA_SETTINGS = ['NODE_EXTRA_CA_CERTS', 'PIP_CERT'].map((name) => `ENV ${name}=/etc/ca-of-this-machine.crt`);

const NODE: BaseImage = {
  tag: 'docker.io/library/node:24.21.0-bookworm-slim',
  containerfile: [
    `FROM ${DEBIAN}`,
    'RUN useradd --uid 1000 --create-home node',
    'COPY local /usr/local',
    // The registries of packages may be behind a proxy of this machine.
    ...(CA_FILE ? ['COPY ca.crt /etc/ca-of-this-machine.crt', ...CA_SETTINGS] : []),
  ],
  prepare: async (folder) => {
    const local = path.join(folder, 'local');
    await run('npm', ['install', '--silent', '--global', '--prefix', local, 'npm@11.21.1']);
    const [node = ''] = globSync(path.join(ROOT, 'node_modules/node-linux-*/bin/node'));
    await copyFile(node, path.join(local, 'bin', 'node'));
    if (CA_FILE) await copyFile(CA_FILE, path.join(folder, 'ca.crt'));
  },
};

/** Building Temporal takes 5 minutes of processor time, so its `go install` copies what the other tests have built. */
const GO: BaseImage = {
  tag: 'docker.io/library/golang:1.26-bookworm',
  containerfile: [`FROM ${DEBIAN}`, 'COPY server sql /opt/', 'COPY go /usr/local/bin/go'],
  prepare: async (folder) => {
    const { cacheDir } = loadConfig({ XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] });
    const log = pino({ level: 'error' }, pino.destination(2));
    const { server, sqlTool } = await temporalPrograms({ cacheDir, env: process.env, log });
    await copyFile(server, path.join(folder, 'server'));
    await copyFile(sqlTool, path.join(folder, 'sql'));
    await writeProgram(path.join(folder, 'go'), '#!/bin/sh\nmkdir -p /go/bin && cp /opt/server /opt/sql /go/bin/\n');
  },
};

const POSTGRES: BaseImage = {
  tag: 'docker.io/library/postgres:15-bookworm',
  containerfile: [
    `FROM ${DEBIAN}`,
    'RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql-15',
    'COPY entrypoint /usr/local/bin/docker-entrypoint.sh',
    'ENV PGDATA=/var/lib/postgresql/data PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin',
    'ENTRYPOINT ["docker-entrypoint.sh"]',
    'CMD ["postgres", "-c", "listen_addresses=*", "-c", "unix_socket_directories=/var/run/postgresql"]',
  ],
  // As the entrypoint of the official image does for a user who is not root.
  prepare: (folder) =>
    writeProgram(
      path.join(folder, 'entrypoint'),
      `#!/bin/sh
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
  initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --encoding=UTF8
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  pg_ctl --wait --options="-c listen_addresses='' -c unix_socket_directories=/var/run/postgresql" start
  for script in /docker-entrypoint-initdb.d/*.sh; do sh "$script"; done
  pg_ctl --wait --mode=fast stop
fi
exec "$@"
`,
    ),
};

const REDIS: BaseImage = {
  tag: 'docker.io/library/redis:7-bookworm',
  containerfile: [
    `FROM ${DEBIAN}`,
    'RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends redis-server',
    'WORKDIR /data',
    // The official image switches the protected mode off, in which Redis answers its own machine only.
    'COPY redis.conf /etc/redis/redis.conf',
    'COPY entrypoint /usr/local/bin/docker-entrypoint.sh',
    'ENTRYPOINT ["docker-entrypoint.sh"]',
    'CMD ["redis-server"]',
  ],
  prepare: async (folder) => {
    await writeFile(path.join(folder, 'redis.conf'), '');
    const script = '#!/bin/sh\nexec "$@" --protected-mode no\n';
    await writeProgram(path.join(folder, 'entrypoint'), script);
  },
};

async function writeProgram(file: string, text: string): Promise<void> {
  await writeFile(file, text);
  await chmod(file, 0o755);
}

/** Images are stored in the cache: a change of this file makes them anew. */
const STORE = path.join(
  loadConfig({ XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] }).cacheDir,
  'images',
  createHash('sha256')
    .update(readFileSync(fileURLToPath(import.meta.url)))
    .digest('hex')
    .slice(0, 12),
);

/** The environment of buildah, and of what runs inside of its mounts. */
export const BUILDAH_ENV = {
  ...process.env,
  CONTAINERS_STORAGE_CONF: path.join(STORE, 'storage.conf'),
  BUILDAH_ISOLATION: 'chroot',
};

export async function buildah(...args: string[]): Promise<string> {
  return inMountNamespace('buildah', ...args);
}

/** buildah leaves a mount of its store behind, which ends with the namespace. */
async function inMountNamespace(...program: string[]): Promise<string> {
  const [command = '', ...args] = [...IN_MOUNT_NAMESPACE, ...program];
  const { stdout } = await run(command, args, { env: BUILDAH_ENV, maxBuffer: 64 * 1024 * 1024 });
  return stdout.trim();
}

/**
 * Builds a target of the Dockerfile of this checkout on the base images, and tags it with `tag`. The packages that npm
 * has on this machine already are not downloaded again.
 */
export async function buildTarget(target: string, tag: string): Promise<void> {
  await makeBaseImages();
  const npm = path.join(homedir(), '.npm');
  await mkdir(npm, { recursive: true });
  // The format that has health checks, and with the layers of the other target.
  await build(ROOT, tag, '--format', 'docker', '--layers', '--target', target, '--volume', `${npm}:/root/.npm`);
}

/** Builds an image from the text of a Dockerfile, and tags it with `tag`. */
export async function buildImage(dockerfile: string, tag: string): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-image-'));
  try {
    await writeFile(path.join(folder, 'Dockerfile'), dockerfile);
    await build(folder, tag);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Removes images with all layers that only they have. */
export async function removeImages(...tags: string[]): Promise<void> {
  await buildah('rmi', '--force', ...tags);
  await buildah('rmi', '--prune', '--force');
}

async function build(context: string, tag: string, ...options: string[]): Promise<void> {
  await buildah('bud', '--pull-never', '--network', 'host', ...options, '--tag', tag, context);
}

async function makeBaseImages(): Promise<void> {
  const complete = path.join(STORE, 'complete');
  if (existsSync(complete)) return;
  await rm(STORE, { recursive: true, force: true });
  await mkdir(STORE, { recursive: true });
  const folders = { graphroot: path.join(STORE, 'graph'), runroot: path.join(STORE, 'run') };
  const lines = Object.entries({ driver: 'overlay', ...folders }).map(([name, value]) => `${name} = "${value}"\n`);
  await writeFile(path.join(STORE, 'storage.conf'), `[storage]\n${lines.join('')}`);

  const debian = [
    'container=$(buildah from scratch)',
    'debootstrap --variant=minbase bookworm "$(buildah mount "$container")"',
    'buildah commit --rm "$container" "$0"',
  ];
  await inMountNamespace('sh', '-ec', debian.join('\n'), DEBIAN);
  for (const { tag, containerfile, prepare } of [NODE, GO, POSTGRES, REDIS]) {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-base-'));
    await prepare?.(folder);
    await writeFile(path.join(folder, 'Containerfile'), containerfile.join('\n'));
    await build(folder, tag);
    await rm(folder, { recursive: true });
  }
  await writeFile(complete, '');
}
