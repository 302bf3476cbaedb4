import type { Catalog } from '../../src/features/catalog.ts';
import { KEY_LIFETIME_MS } from '../../src/catalog/idempotency.ts';
import type { SessionFilter } from '../../src/catalog/sessions.ts';
import type { SessionListFilter } from '../../src/features/agent-sessions/session-list.ts';
import { BUSY, idOf, LONG_SESSION, NOW } from './filled-catalog.ts';

/** All methods of the catalog's parts, as `part.method`. */
type CatalogMethod = {
  [Part in keyof Catalog & string]: Catalog[Part] extends (...args: never[]) => unknown
    ? never
    : `${Part}.${keyof Catalog[Part] & string}`;
}[keyof Catalog & string];

/** A name that no method has is a type error. */
type Known<Method extends CatalogMethod> = Method;

/** The methods that write or read by the key of one row, one turn, or what one session has open. */
type KeyedMethod = Known<
  | `agents.${'get' | 'registered' | 'put' | 'delete' | 'version' | 'putSpec' | 'spec'}`
  | `agentDefinitions.${'get' | 'create' | 'put'}`
  | `agentParts.${'get' | 'insert' | 'change' | 'delete'}`
  | `sessions.${'get' | 'insert' | 'update' | 'close' | 'touch' | 'delete' | 'deletedAt' | 'forget'}`
  | `turns.${'get' | 'request' | 'withdraw' | 'enqueue' | 'accept' | 'remove'}`
  | 'turnPositions.place'
  | `delegations.${'get' | 'setNotified'}`
  | 'archive.add'
  | `blobReferences.${'sweep' | 'postpone'}`
  | `idempotency.${'keysOf' | 'claim' | 'taken' | 'renew' | 'release'}`
  | `kernelHosts.${'seen' | 'remove' | 'isRunning'}`
  | `permissionRules.${'add' | 'delete' | 'deleteCell'}`
  | `savedTools.${'get' | 'save' | 'delete'}`
  | `sandboxes.${'get' | 'find' | 'open' | 'create' | 'createUnopened' | 'keep' | 'keepSnapshots' | 'change' | 'reset' | 'resetsDone' | 'note'}`
  | 'sandboxes.endKernels'
  | `keys.${'insert' | 'findAll' | 'get' | 'revoke' | 'recordUse'}`
  | `subjectRoles.${'record' | 'get'}`
  | 'encryptionKeys.register'
  | `marks.${'get' | 'raise'}`
  | `modelServers.${'record' | 'hasResponded'}`
  | `mcpSignIns.${'insert' | 'find' | 'status' | 'requested' | 'redirect' | 'replacedSince' | 'change' | 'grant'}`
  | `mcpSignIns.${'settle' | 'setNotified'}`
  | `mcpGrants.${'get' | 'find' | 'reserveRefresh' | 'releaseRefresh' | 'replaceTokens' | 'remove' | 'take'}`
  | `outbox.${'announce' | 'onChange' | 'transaction'}`
  | `actions.${'find' | 'get'}`
  | 'keptAnswers.add'
  | `webhooks.${'insert' | 'get' | 'find' | 'delete' | 'rotate' | 'update' | 'attempted'}`
  | `deliveries.${'ping' | 'record' | 'drop' | 'release' | 'get'}`
  | `spending.${'begin' | 'settle' | 'takeBack' | 'raise' | 'report'}`
  | `sessionRequests.${'get' | 'postponeDeletion'}`
  | `sharedSessions.${'has' | 'add' | 'remove'}`
  | 'sessionFeedback.put'
  | `schedules.${'insert' | 'get' | 'find' | 'change' | 'delete' | 'remove' | 'synced' | 'postpone' | 'claim'}`
  | `scheduleRuns.${'get' | 'record'}`
  | `sessionSlots.${'create' | 'hasInput' | 'buffer' | 'revive' | 'take' | 'firstTurn' | 'begin' | 'renew'}`
  | `sessionSlots.${'started' | 'rejected' | 'cancel'}`
  | 'storedBytes.addBlob'
  | 'runSecrets.get'
  | 'underived.derive'
>;

/** Calls of one method, by the name of the case. */
type Calls = Record<string, (catalog: Catalog) => Promise<unknown>>;

const SESSION = idOf('ses', 5_000);
const TURN = idOf('turn_b', 5_000);
const FIRST_TURN = idOf('turn_a', 5_000);
const RUN = idOf('run', 5_000);
const WEBHOOK = idOf('whk', 0);
const QUIET = 'user-31';

const capacity = { limit: 1, perSubject: 1, now: NOW };
const [minute, day] = [before(60_000), before(86_400_000)];

/**
 * The lists, counts and sweeps of the catalog, with what routes and housekeeping call them with. A new method of the
 * catalog is a type error until it is here, or among the `KeyedMethod`s.
 */
export const CATALOG_CALLS: Record<Exclude<CatalogMethod, KeyedMethod>, Calls> = {
  'agents.list': { all: ({ agents }) => agents.list('asc', undefined, 100) },
  'agents.versions': { 'one agent': ({ agents }) => agents.versions('agent-1', 'asc', undefined, 100) },
  'agents.forgetSpecs': { due: ({ agents }) => agents.forgetSpecs(day, NOW.toISOString()) },
  'agentDefinitions.page': {
    all: ({ agentDefinitions: all }) => all.page({ offset: 0, limit: 50, sort: [] }, 1e9),
    search: ({ agentDefinitions: all }) => all.page({ offset: 0, limit: 50, sort: [], search: 'helps' }, 1e9),
  },
  'agentDefinitions.revisions': {
    'one agent': ({ agentDefinitions: all }) => all.revisions('agent-1', { offset: 0, limit: 50, descending: true }),
  },
  'agentParts.page': { skills: ({ agentParts }) => agentParts.page('skill', { offset: 0, limit: 50, sort: [] }, 1e9) },
  'sessions.list': sessionLists(),
  'sessions.toRemove': { due: ({ sessions }) => sessions.toRemove(NOW.toISOString(), undefined, 100) },
  'turns.last': {
    'one session': ({ turns }) => turns.last(SESSION),
    'a long session': ({ turns }) => turns.last(LONG_SESSION),
  },
  'turns.after': { 'a long session': ({ turns }) => turns.after(LONG_SESSION, 1_000, 100) },
  'turns.around': { 'a long session': ({ turns }) => turns.around(LONG_SESSION, idOf('turn_l', 1_000)) },
  'turns.requests': { 'a long session': ({ turns }) => turns.requests(LONG_SESSION) },
  'turns.positionInQueue': { 'one session': ({ turns }) => turns.positionInQueue(idOf('ses', 1), 1) },
  'turns.sessionsWithQueue': { all: ({ turns }) => turns.sessionsWithQueue() },
  'turns.unarchived': { all: ({ turns }) => turns.unarchived() },
  'turns.unarchivedBefore': {
    'one session': ({ turns }) =>
      turns.unarchivedBefore({ id: TURN, session_id: SESSION, sequence: 2, previous_turn_id: FIRST_TURN }),
  },
  'turns.branchEnds': {
    'one session': ({ turns }) => turns.branchEnds(SESSION),
    'a long session': ({ turns }) => turns.branchEnds(LONG_SESSION),
  },
  'turns.isFollowed': { 'one turn': ({ turns }) => turns.isFollowed(TURN) },
  'turns.chain': { 'a long session': ({ turns }) => turns.chain(idOf('turn_l', 1_999), 100) },
  'turns.countOpen': {
    all: ({ turns }) => turns.countOpen({ except: [SESSION], createdSince: day, requestedSince: minute }),
  },
  'turns.all': { 'one session': ({ turns }) => Array.fromAsync(turns.all(SESSION)) },
  'turns.newestId': {
    'one session': ({ turns }) => turns.newestId(SESSION),
    'a long session': ({ turns }) => turns.newestId(LONG_SESSION, { except: TURN }),
  },
  'turnPositions.lastAt': { 'a long session': ({ turnPositions }) => turnPositions.lastAt(LONG_SESSION, 500) },
  'turnPositions.firstAfter': { 'a long session': ({ turnPositions }) => turnPositions.firstAfter(LONG_SESSION, 500) },
  'turnPositions.unplaced': { 'a long session': ({ turnPositions }) => turnPositions.unplaced(LONG_SESSION, 100) },
  'turnPositions.news': { 'two sessions': ({ turnPositions }) => turnPositions.news([SESSION, idOf('ses', 1)]) },
  'delegations.ofSession': { 'one run': ({ delegations }) => delegations.ofSession(idOf('run', 1)) },
  'delegations.unnotifiedOf': { 'one turn': ({ delegations }) => delegations.unnotifiedOf(idOf('turn_run', 1)) },
  'delegations.unnotifiedBy': { 'one turn': ({ delegations }) => delegations.unnotifiedBy(idOf('turn_run', 1)) },
  'delegations.toSettle': { all: ({ delegations }) => delegations.toSettle(100) },
  'archive.read': { 'one turn': ({ archive }) => archive.read(FIRST_TURN, 1, 100) },
  'archive.readAll': { 'two turns': ({ archive }) => archive.readAll([FIRST_TURN, idOf('turn_run', 0)]) },
  'blobReferences.of': { 'one run': ({ blobReferences }) => blobReferences.of(RUN) },
  'blobReferences.unswept': { due: ({ blobReferences }) => blobReferences.unswept(day, 1_000) },
  'retention.days': { all: ({ retention }) => retention.days() },
  'retention.idle': { due: ({ retention }) => retention.idle({ days: 120, before: before(120 * 86_400_000) }, 1_000) },
  'idempotency.forget': { due: ({ idempotency }) => idempotency.forget(before(KEY_LIFETIME_MS + 1)) },
  'keys.list': { all: ({ keys }) => keys.list() },
  'keys.any': { all: ({ keys }) => keys.any() },
  'mcpSignIns.unnotified': { all: ({ mcpSignIns }) => mcpSignIns.unnotified(100) },
  'mcpSignIns.forget': { due: ({ mcpSignIns }) => mcpSignIns.forget(day) },
  'mcpGrants.list': { 'one subject': ({ mcpGrants }) => mcpGrants.list(QUIET, '', 100) },
  'actions.list': actionLists(),
  'actions.hasFor': { 'one session': ({ actions }) => actions.hasFor(SESSION, readerOf(BUSY)) },
  'actions.isAnyPending': { 'two sessions': ({ actions }) => actions.isAnyPending([SESSION, RUN]) },
  'actions.pendingOf': { 'two sessions': ({ actions }) => actions.pendingOf([SESSION, RUN]) },
  'actions.events': { 'since a number': ({ actions }) => actions.events(1_000, 100) },
  'actions.newest': { all: ({ actions }) => actions.newest() },
  'webhooks.list': { all: ({ webhooks }) => webhooks.list('sessions') },
  'webhooks.ids': { all: ({ webhooks }) => webhooks.ids() },
  'deliveries.claim': {
    due: ({ deliveries }) =>
      deliveries.claim(WEBHOOK, { now: minute, until: NOW.toISOString(), limit: 10, lease: 'lease' }),
  },
  'deliveries.next': {
    'one lane': ({ deliveries }) =>
      deliveries.next({ webhookId: WEBHOOK, sessionId: RUN, lease: 'lease', lastSequence: 1 }),
  },
  'deliveries.nextDue': { all: ({ deliveries }) => deliveries.nextDue() },
  'deliveries.oldestPending': { all: ({ deliveries }) => deliveries.oldestPending() },
  'deliveries.list': { 'one webhook': ({ deliveries }) => deliveries.list(WEBHOOK, undefined, 100) },
  'deliveries.forget': { due: ({ deliveries }) => deliveries.forget(before(3 * 86_400_000 + 1)) },
  'sessionRequests.childrenOf': {
    'one session': ({ sessionRequests }) => sessionRequests.childrenOf(idOf('ses', 1)),
  },
  'sessionRequests.toDelete': { due: ({ sessionRequests }) => sessionRequests.toDelete(NOW.toISOString(), 1_000) },
  'schedules.list': {
    all: ({ schedules }) => schedules.list({ subjectId: undefined, order: 'desc', offset: 0, limit: 50 }),
    'one subject': ({ schedules }) => schedules.list({ subjectId: BUSY, order: 'desc', offset: 0, limit: 50 }),
  },
  'schedules.toSync': { due: ({ schedules }) => schedules.toSync(day, 200) },
  'scheduleRuns.list': {
    'one schedule': ({ scheduleRuns }) => scheduleRuns.list(idOf('sch', 1), { order: 'desc', offset: 0, limit: 50 }),
  },
  'sessionSlots.admit': { full: ({ sessionSlots }) => sessionSlots.admit(capacity, () => 'turn') },
  'sessionSlots.starting': { all: ({ sessionSlots }) => sessionSlots.starting() },
  'sessionSlots.usage': { all: ({ sessionSlots }) => sessionSlots.usage(BUSY, capacity) },
  'storedBytes.of': {
    'one subject': ({ storedBytes }) => storedBytes.of(QUIET),
    'a busy subject': ({ storedBytes }) => storedBytes.of(BUSY),
  },
  'storedBytes.addChanges': { none: ({ storedBytes }) => storedBytes.addChanges(new AbortController().signal) },
  'storedBytes.totals': { all: ({ storedBytes }) => storedBytes.totals() },
  'sessionList.count': shownLists(({ sessionList }, filter) => sessionList.count({ filter, order: 'desc', now: NOW })),
  'sessionList.page': shownLists(({ sessionList }, filter) =>
    sessionList.page({ filter, order: 'desc', now: NOW }, { offset: 0, limit: 50 }),
  ),
  'runSummaries.of': { 'two runs': ({ runSummaries }) => runSummaries.of([RUN, idOf('run', 1)]) },
  'underived.deriveTurns': { due: ({ underived }) => underived.deriveTurns(500) },
  'underived.sessions': { due: ({ underived }) => underived.sessions('', 50) },
  'kernelHosts.running': { all: ({ kernelHosts }) => kernelHosts.running(NOW.getTime()) },
  'kernelHosts.sweep': { due: ({ kernelHosts }) => kernelHosts.sweep(NOW.getTime()) },
  'sandboxes.isAny': { all: ({ sandboxes }) => sandboxes.isAny() },
  'sandboxes.withResets': { 'one host': ({ sandboxes }) => sandboxes.withResets('everturn/kernels/1') },
  'sandboxes.on': { 'one host': ({ sandboxes }) => sandboxes.on('everturn/kernels/1') },
  'permissionRules.in': {
    'all places of a call': ({ permissionRules }) =>
      permissionRules.in(
        [
          { scope: 'always', subjectId: BUSY, agentName: 'agent-2' },
          { scope: 'session', sessionId: SESSION },
          { scope: 'cell', sessionId: SESSION, threadId: 'main', toolCallId: 'call_1' },
        ],
        NOW.getTime(),
      ),
  },
  'savedTools.list': {
    'those of a subject': ({ savedTools }) => savedTools.list({ agentName: 'agent-2', subjectId: BUSY }),
  },
  'idleTimeouts.end': {
    due: ({ idleTimeouts }) => idleTimeouts.end(NOW.toISOString(), new AbortController().signal),
  },
};

/** The calls with their names, as `part.method: case`. */
export function catalogCalls(): { name: string; call: (catalog: Catalog) => Promise<unknown> }[] {
  return Object.entries(CATALOG_CALLS).flatMap(([method, calls]) =>
    Object.entries(calls).map(([name, call]) => ({ name: `${method}: ${name}`, call })),
  );
}

/** Lists of runs, sessions and drafts, as the Sessions API and the run API filter them: in both orders, and from a place. */
function sessionLists(): Calls {
  const types = ['run', 'session', 'session/draft'] as const;
  const filters: Record<string, Omit<SessionFilter, 'type'>> = {
    all: {},
    'an agent': { agentName: 'agent-2' },
    'a subject': { subjectId: QUIET },
    'a busy subject': { subjectId: BUSY },
    'a slug': { subjectSlug: QUIET },
    'a subject and an agent': { subjectId: BUSY, agentName: 'agent-2' },
    'a type of subjects': { subjectType: 'user' },
    'a state': { states: ['cancelled'], isClosed: false },
    'a rare state': { states: ['running', 'delegating', 'asking', 'paused'], isClosed: false },
    'a busy subject and a state': { subjectId: BUSY, states: ['cancelled', 'error'], isClosed: false },
    'a busy subject, not one state': { subjectId: BUSY, exceptState: 'pending' },
    closed: { isClosed: true },
    'a subject, closed': { subjectId: QUIET, isClosed: true },
    'a time': { from: before(20 * 86_400_000), to: before(10 * 86_400_000) },
  };
  const calls: Calls = {};
  for (const type of types) {
    for (const [name, filter] of Object.entries(filters)) {
      for (const order of ['asc', 'desc'] as const) {
        const after = { createdAt: before(15 * 86_400_000), id: SESSION };
        const list = { ...filter, type };
        calls[`${type}, ${name}, ${order}`] = ({ sessions }) =>
          sessions.list(list, { order, after: undefined, limit: 11 });
        calls[`${type}, ${name}, ${order}, next`] = ({ sessions }) => sessions.list(list, { order, after, limit: 11 });
      }
    }
  }
  return calls;
}

/** Lists of the Agents API v2. */
function shownLists(call: (catalog: Catalog, filter: SessionListFilter) => Promise<unknown>): Calls {
  const filters: Record<string, SessionListFilter> = {
    all: {},
    'a subject': { subjectId: QUIET },
    'a busy subject': { subjectId: BUSY },
    'a group': { groupId: 'group-1', subjectId: BUSY },
    'a parent': { parentId: LONG_SESSION },
    'a schedule': { scheduleId: idOf('sch', 1) },
    'an agent': { agents: ['agent-1'], subjectId: BUSY },
    'a time': { createdFrom: before(20 * 86_400_000), createdTo: before(10 * 86_400_000) },
    'a state': { states: ['error', 'unanswered'], subjectId: BUSY },
  };
  return Object.fromEntries(
    Object.entries(filters).map(([name, filter]) => [name, (catalog: Catalog) => call(catalog, filter)]),
  );
}

function actionLists(): Calls {
  const calls: Calls = {};
  for (const subject of [QUIET, BUSY]) {
    for (const settled of [false, true]) {
      for (const agentName of [undefined, 'agent-2']) {
        const name = `${subject}, ${settled ? 'settled' : 'pending'}${agentName ? ', an agent' : ''}`;
        const page = { settled, agentName, order: 'desc', after: undefined, limit: 11 } as const;
        calls[name] = ({ actions }) => actions.list({ ...readerOf(subject), ...page });
      }
    }
  }
  return calls;
}

function readerOf(subject: string): { audiences: string[]; excluded: string } {
  return { audiences: [`decide:${subject}`, 'role:approver'], excluded: `excluded:${subject}` };
}

function before(ms: number): string {
  return new Date(NOW.getTime() - ms).toISOString();
}
