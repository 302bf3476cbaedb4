import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { chromium, type BrowserContext, type Page } from 'playwright-core';
import { killUsersAtEnd } from './reaper.ts';

/** A page in a headless Chromium, which can connect to this machine only. */
export class Browser {
  readonly page: Page;
  /** The URLs that the page has requested. */
  readonly requests: string[] = [];
  /** The errors of the console, including violations of the page's content security policy. */
  readonly complaints: string[] = [];
  readonly #context: BrowserContext;
  readonly #profile: string;

  private constructor(context: BrowserContext, page: Page, profile: string) {
    this.page = page;
    this.#context = context;
    this.#profile = profile;
    page.on('request', (request) => this.requests.push(request.url()));
    page.on('pageerror', (error) => this.complaints.push(String(error)));
    page.on('console', (message) => {
      if (message.type() === 'error') this.complaints.push(message.text());
    });
  }

  static async start(): Promise<Browser> {
    const profile = await mkdtemp(path.join(tmpdir(), 'everturn-browser-'));
    killUsersAtEnd(profile);
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: '/usr/bin/chromium',
      args: ['--no-sandbox', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
      viewport: { width: 1280, height: 1600 },
    });
    // A test has its own time-out.
    context.setDefaultTimeout(0);
    const page = await context.newPage();
    return new Browser(context, page, profile);
  }

  async stop(): Promise<void> {
    await this.#context.close();
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
