import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdir, open, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { buildah, BUILDAH_ENV } from './base-images.ts';
import type { Service } from './compose.ts';
import { killAtEnd } from './reaper.ts';

const run = promisify(execFile);

/** The settings of an image for its containers. */
interface ImageConfig {
  Entrypoint?: string[];
  Cmd?: string[];
  Env?: string[];
  User?: string;
  WorkingDir?: string;
  Healthcheck?: { Test: string[] };
}

interface Process {
  user: { uid: number; gid: number };
  args: string[];
  env: string[];
  cwd: string;
  noNewPrivileges: boolean;
  capabilities: Record<string, string[]>;
  terminal: false;
}

interface Container {
  name: string;
  address: string;
  bundle: string;
  process: Process;
  healthcheck: string[];
  dependencies: string[];
}

/**
 * The services of a Compose file as containers of `crun`, on images that buildah has: with the user, the rights, the
 * mounts and the dependencies that the file gives them, each with processes, network and host name of its own. The limits
 * of memory and processes are not applied, since that requires control groups; nor is AppArmor. Of Docker's profile of system
 * calls that part is which walls could be made with.
 *
 * All of it, networks and mounts included, is in namespaces of one process, and ends with that process.
 */
export class Containers {
  /** The address of this machine for the containers. */
  readonly hostAddress: string;
  readonly #folder: string;
  readonly #containers = new Map<string, Container>();
  readonly #roots: string[] = [];
  readonly #holder: ChildProcess;
  readonly #network: string;

  private constructor(folder: string, holder: ChildProcess) {
    this.#folder = folder;
    this.#holder = holder;
    // Another run of the tests has other addresses.
    this.#network = `10.213.${process.pid % 256}`;
    this.hostAddress = `${this.#network}.254`;
  }

  /** Starts a machine without containers. `folder` is for their state and their volumes. */
  static async start(folder: string): Promise<Containers> {
    const namespaces = ['--mount', '--propagation=private', '--net', '--pid', '--fork', '--kill-child', '--mount-proc'];
    const holder = killAtEnd(
      // crun 1.8 does not work with two versions of control groups at once, which some machines have.
      spawn(
        'unshare',
        [...namespaces, 'sh', '-c', `umount ${UNIFIED} 2>/dev/null; echo; exec tini -- sleep infinity`],
        {
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      ),
    );
    await once(holder.stdout, 'data');
    const containers = new Containers(folder, holder);
    await containers.#connect();
    return containers;
  }

  /** Starts services, each when those that it depends on are healthy. */
  async up(services: Record<string, Service>): Promise<void> {
    const addresses = new Map(Object.keys(services).map((name, index) => [name, `${this.#network}.${index + 1}`]));
    for (const [name, service] of Object.entries(services)) await this.#prepare(name, service, addresses);
    const started = new Map<string, Promise<void>>();
    const startOnce = (name: string): Promise<void> => {
      const known = started.get(name);
      if (known) return known;
      const { dependencies } = this.#get(name);
      const starting = Promise.all(dependencies.map(startOnce)).then(() => this.start(name));
      started.set(name, starting);
      return starting;
    };
    await Promise.all([...addresses.keys()].map(startOnce));
  }

  /** Starts a service, and waits until it is healthy. */
  async start(name: string): Promise<void> {
    const { bundle, address } = this.#get(name);
    const log = await open(path.join(bundle, 'log'), 'a');
    const pidFile = path.join(bundle, 'pid');
    const create = ['create', '--bundle', bundle, '--pid-file', pidFile, name];
    const creating = spawn('nsenter', this.#inside('crun', ...CRUN, ...create), {
      stdio: ['ignore', log.fd, log.fd],
    });
    const [code] = (await once(creating, 'exit')) as [number];
    await log.close();
    if (code !== 0) throw new Error(`crun did not create ${name}:\n${await this.log(name)}`);
    const pid = await readFile(pidFile, 'utf8');
    const inItsNetwork = `nsenter --target ${pid} --net ip`;
    await this.#sh(
      `ip link add to-${name} type veth peer name eth0 netns ${pid}`,
      `ip link set to-${name} master containers up`,
      `${inItsNetwork} address add ${address}/24 dev eth0`,
      `${inItsNetwork} link set eth0 up`,
      `${inItsNetwork} link set lo up`,
    );
    await this.#crun('start', name);
    while (!(await this.isHealthy(name))) {
      if (!(await this.isRunning(name))) throw new Error(`${name} ended:\n${await this.log(name)}`);
      await sleep(100);
    }
  }

  /** Kills all processes of a service, as a crash of its container does. */
  async kill(name: string): Promise<void> {
    await this.#crun('delete', '--force', name);
    // The kernel removes it later, together with the network of the container.
    await this.#sh(`ip link delete to-${name} || true`);
  }

  /** Suspends all processes of a service. */
  async pause(name: string): Promise<void> {
    await this.#signal(name, 'STOP');
  }

  async goOn(name: string): Promise<void> {
    await this.#signal(name, 'CONT');
  }

  /** Whether the health check of a service succeeds in time. */
  async isHealthy(name: string): Promise<boolean> {
    return this.#exec(name, this.#get(name).healthcheck, CHECK_MS).then(
      () => true,
      () => false,
    );
  }

  /** The processor time that one health check of a service takes in its container, in seconds. */
  async checkSeconds(name: string): Promise<number> {
    const repeat = 'TIMEFORMAT="%U %S"; { time for _ in {1..10}; do "$@" > /dev/null; done; } 2>&1';
    const used = await this.exec(name, 'bash', '-ec', repeat, 'bash', ...this.#get(name).healthcheck);
    const [user, system] = used.trim().split(' ').map(Number);
    return ((user ?? NaN) + (system ?? NaN)) / 10;
  }

  /** Runs a program in a service, with its user and rights. Returns what it writes. */
  async exec(name: string, ...args: string[]): Promise<string> {
    return this.#exec(name, args);
  }

  async isRunning(name: string): Promise<boolean> {
    const { status } = JSON.parse(await this.#crun('state', name)) as { status: string };
    return status === 'running';
  }

  /** The output of a service. */
  async log(name: string): Promise<string> {
    return readFile(path.join(this.#get(name).bundle, 'log'), 'utf8');
  }

  url(name: string, port: number): string {
    return `http://${this.#get(name).address}:${port}`;
  }

  async stop(): Promise<void> {
    const ended = once(this.#holder, 'exit');
    this.#holder.kill('SIGKILL');
    await ended;
    if (this.#roots.length > 0) await buildah('rm', ...this.#roots);
  }

  async #connect(): Promise<void> {
    const own = `everturn${process.pid}`;
    await run('ip', ['link', 'add', own, 'type', 'veth', 'peer', 'name', 'host', 'netns', String(this.#holder.pid)]);
    await run('ip', ['address', 'add', `${this.hostAddress}/24`, 'dev', own]);
    await run('ip', ['link', 'set', own, 'up']);
    await this.#sh(
      'ip link add containers type bridge',
      'ip link set containers up',
      'ip link set host master containers up',
      // crun's state is of these containers only.
      'mount -t tmpfs tmpfs /run',
    );
  }

  async #prepare(name: string, service: Service, addresses: Map<string, string>): Promise<void> {
    const container = await buildah('from', '--pull-never', service.image);
    this.#roots.push(container);
    const root = (await this.#sh(`buildah mount ${container}`)).trim();
    const image = await imageConfig(service.image);
    const user = userOf(service.user ?? (image.User || '0'), await this.#sh(`cat ${root}/etc/passwd`));
    const bundle = path.join(this.#folder, 'containers', name);
    await mkdir(bundle, { recursive: true });
    const hosts = path.join(bundle, 'hosts');
    const names = [...addresses].map(([other, address]) => `${address} ${other}\n`);
    await writeFile(hosts, `127.0.0.1 localhost\n${names.join('')}`);
    const bind = (source: string, destination: string, ...options: string[]) => ({
      destination,
      type: 'bind',
      source,
      options: ['rbind', ...options],
    });
    const volumes = (service.volumes ?? []).map(async (volume) => {
      const [, source = '', destination = '', mode = ''] = /^(.*?):(.*):(\w+)$/.exec(volume) ?? [];
      if (source.startsWith('/')) return bind(source, destination, mode);
      const folder = path.join(this.#folder, 'volumes', source);
      // A new volume gets the owner of the folder in the image.
      if (await mkdir(folder, { recursive: true })) await chown(folder, user.uid, user.gid);
      return bind(folder, destination, mode);
    });
    const env = { ...variables(image.Env ?? []), ...service.environment };
    const program = [...(image.Entrypoint ?? []), ...(service.command ?? image.Cmd ?? [])];
    const own: Process = {
      terminal: false,
      user,
      args: service.init ? [INIT, '--', ...program] : program,
      env: Object.entries(env).map(([variable, value]) => `${variable}=${value}`),
      cwd: image.WorkingDir || '/',
      noNewPrivileges: service.security_opt?.includes('no-new-privileges:true') ?? false,
      capabilities: service.cap_drop?.includes('ALL') ? {} : DOCKER_CAPABILITIES,
    };
    const config = {
      ociVersion: '1.0.2',
      hostname: name,
      root: { path: root, readonly: service.read_only ?? false },
      process: own,
      mounts: [
        ...SYSTEM_MOUNTS,
        ...[service.tmpfs ?? []].flat().map((destination) => ({ ...TMPFS, destination })),
        ...(await Promise.all(volumes)),
        bind(hosts, '/etc/hosts', 'ro'),
        ...(service.init ? [bind('/usr/bin/tini-static', INIT, 'ro')] : []),
      ],
      linux: {
        namespaces: ['pid', 'network', 'ipc', 'uts', 'mount'].map((type) => ({ type })),
        seccomp: WITHOUT_NAMESPACES,
      },
    };
    await writeFile(path.join(bundle, 'config.json'), JSON.stringify(config));
    this.#containers.set(name, {
      name,
      address: addresses.get(name) ?? '',
      bundle,
      process: own,
      healthcheck: (service.healthcheck?.test ?? image.Healthcheck?.Test ?? []).slice(1),
      dependencies: Object.keys(service.depends_on ?? {}),
    });
  }

  async #exec(name: string, args: string[], timeout = 0): Promise<string> {
    const { bundle, process: own } = this.#get(name);
    const file = path.join(bundle, 'exec.json');
    await writeFile(file, JSON.stringify({ ...own, args }));
    const command = this.#inside('crun', ...CRUN, 'exec', '--process', file, name);
    return (await run('nsenter', command, { timeout })).stdout;
  }

  async #signal(name: string, signal: 'STOP' | 'CONT'): Promise<void> {
    const { pid } = JSON.parse(await this.#crun('state', name)) as { pid: number };
    await this.#sh(
      `to_all() { kill -${signal} $1 || true; for child in $(cat /proc/$1/task/*/children); do to_all $child; done; }`,
      `to_all ${pid}`,
    );
  }

  async #crun(...args: string[]): Promise<string> {
    return (await run('nsenter', this.#inside('crun', ...CRUN, ...args))).stdout;
  }

  /** Runs commands on the machine of the containers. */
  async #sh(...commands: string[]): Promise<string> {
    const options = { env: BUILDAH_ENV };
    return (await run('nsenter', this.#inside('sh', '-ec', commands.join('\n')), options)).stdout;
  }

  #inside(...command: string[]): string[] {
    const { pid } = this.#holder;
    return ['--target', String(pid), '--mount', '--net', `--pid=/proc/${pid}/ns/pid_for_children`, ...command];
  }

  #get(name: string): Container {
    const container = this.#containers.get(name);
    if (!container) throw new Error(`there is no container ${name}`);
    return container;
  }
}

const UNIFIED = '/sys/fs/cgroup/unified';

const CRUN = ['--cgroup-manager=disabled'];

const INIT = '/sbin/docker-init';

/** The time-out of the file. */
const CHECK_MS = 10_000;

/** As Docker mounts them unless the file says otherwise. */
const TMPFS = { type: 'tmpfs', source: 'tmpfs', options: ['rw', 'noexec', 'nosuid', 'nodev'] };

/** The capabilities that Docker gives to containers whose service drops none. */
const DOCKER_CAPABILITIES = Object.fromEntries(
  ['bounding', 'effective', 'permitted'].map((set) => [
    set,
    (
      'AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID ' +
      'SYS_CHROOT'
    )
      .split(' ')
      .map((name) => `CAP_${name}`),
  ]),
);

const EPERM = 1;
const ENOSYS = 38;
const CLONE_NEWUSER = 0x1000_0000;

/**
 * What Docker's default profile refuses to a container without CAP_SYS_ADMIN: namespaces of users, without which there are no
 * others either, and mounts. Source: https://github.com/moby/moby/blob/master/profiles/seccomp/default.json
 */
const WITHOUT_NAMESPACES = {
  defaultAction: 'SCMP_ACT_ALLOW',
  syscalls: [
    {
      names: ['unshare', 'setns', 'mount', 'umount2', 'pivot_root', 'fsopen', 'fsmount', 'move_mount', 'open_tree'],
      action: 'SCMP_ACT_ERRNO',
      errnoRet: EPERM,
    },
    {
      names: ['clone'],
      action: 'SCMP_ACT_ERRNO',
      errnoRet: EPERM,
      args: [{ index: 0, value: CLONE_NEWUSER, valueTwo: CLONE_NEWUSER, op: 'SCMP_CMP_MASKED_EQ' }],
    },
    { names: ['clone3'], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
  ],
};

const SYSTEM_MOUNTS = [
  { destination: '/proc', type: 'proc', source: 'proc' },
  { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'strictatime', 'mode=755', 'size=64k'] },
  { destination: '/dev/pts', type: 'devpts', source: 'devpts', options: ['nosuid', 'noexec', 'newinstance'] },
  { ...TMPFS, destination: '/dev/shm', options: ['noexec', 'nosuid', 'nodev', 'mode=1777', 'size=64m'] },
];

async function imageConfig(image: string): Promise<ImageConfig> {
  const { Docker } = JSON.parse(await buildah('inspect', '--type', 'image', image)) as {
    Docker: { config: ImageConfig };
  };
  return Docker.config;
}

/** A user as files and images name it: by number, or by the name that it has in the image's list of users. */
function userOf(user: string, list: string): { uid: number; gid: number } {
  const [uid = '', gid = '0'] = user.split(':');
  if (/^\d+$/.test(uid)) return { uid: Number(uid), gid: Number(gid) };
  const [, , id, group] =
    list
      .split('\n')
      .find((line) => line.startsWith(`${uid}:`))
      ?.split(':') ?? [];
  if (id === undefined) throw new Error(`the image has no user ${uid}`);
  return { uid: Number(id), gid: Number(group) };
}

function variables(lines: string[]): Record<string, string> {
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}
