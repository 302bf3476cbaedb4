import { z } from 'zod';
import { catalogName } from './names.ts';

/** The shapes of environments: what agents act in. */

const id = z.string().max(256).nullish();
const seconds = z.number().min(0).max(600).nullish();

const common = {
  id: z.string().min(1).max(127),
  session_id: id.describe('an existing one to connect to'),
  lazy: z.boolean().optional(),
};

const visualMode = z.strictObject({
  type: z.literal('visual'),
  width: z.int().min(1).max(10_000).default(1_200),
  height: z.int().min(1).max(10_000).default(1_200),
  markdown: z.boolean().default(false),
});

const textMode = z.strictObject({
  type: z.literal('text'),
  chunk_size: z.int().min(1).max(1_000_000).default(20_000),
});

const proxy = z.strictObject({
  country: z
    .string()
    .regex(/^[A-Z]{2}$/, 'must be the two letters of a country')
    .nullish(),
  sticky: z.boolean().nullish(),
  pool: z.enum(['residential', 'datacenter', 'isp', 'mobile']).nullish(),
});

const web = z.strictObject({
  kind: z.literal('web'),
  ...common,
  host: z.enum(['cloud', 'user_device']).default('cloud'),
  start_url: z.url().max(2_048).default('https://www.bing.com'),
  headless: z.boolean().default(false),
  mode: z
    .discriminatedUnion('type', [visualMode, textMode])
    .default({ type: 'visual', width: 1_200, height: 1_200, markdown: false }),
  settle_s: seconds.describe('seconds to wait after each action'),
  vault_id: id,
  browser_profile_id: id,
  use_default_browser_profile: z.boolean().default(false),
  persist_browser_profile: z.boolean().default(false),
  network: z.strictObject({ proxy_url: z.url().max(2_048).nullish(), managed_proxy: proxy.nullish() }).nullish(),
});

const desktop = z.strictObject({
  kind: z.literal('desktop'),
  ...common,
  host: z.enum(['user_device', 'cloud']).default('user_device'),
  settle_s: seconds.describe('seconds to wait after each action'),
  screenshot_max_width: z.int().min(1).max(10_000).nullish().describe('in pixels'),
});

const android = z.strictObject({ kind: z.literal('android'), ...common, image: z.string().max(512).nullish() });

const workstation = z.strictObject({
  kind: z.literal('workstation'),
  ...common,
  host: z.enum(['user_device', 'cloud']).default('cloud'),
  storage: z
    .strictObject({
      volume_id: id,
      use_default_volume: z.boolean().nullish(),
      ephemeral: z.boolean().nullish(),
    })
    .nullish(),
});

/** What an agent acts in. */
export const environment = z
  .discriminatedUnion('kind', [web, desktop, android, workstation])
  .superRefine((value, context) => {
    if (value.kind !== 'web') return;
    const refuse = (path: string[], message: string) => context.addIssue({ code: 'custom', path, message });
    const { browser_profile_id: profile, use_default_browser_profile: usesDefault, network } = value;
    if (profile && usesDefault) refuse(['browser_profile_id'], 'excludes use_default_browser_profile');
    if (value.persist_browser_profile && !profile && !usesDefault) {
      refuse(['persist_browser_profile'], 'needs browser_profile_id or use_default_browser_profile');
    }
    if (network?.proxy_url && network.managed_proxy) refuse(['network', 'proxy_url'], 'excludes managed_proxy');
  })
  .meta({ id: 'Environment' });

/** An environment of the catalog, where its id is its name. */
export const registeredEnvironment = environment.superRefine((value, context) => {
  const { error } = catalogName.safeParse(value.id);
  for (const { message } of error?.issues ?? []) context.addIssue({ code: 'custom', path: ['id'], message });
});

/** The fields of an environment to change; which ones it has depends on its kind. */
export const environmentPatch = z
  .record(z.string().max(64), z.unknown())
  .describe('the fields to change; null unsets one')
  .meta({ id: 'EnvironmentPatch' });

export type Environment = z.infer<typeof environment>;
