import type { ActionResource } from '../../src/api/sessions/wire/actions.ts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { messageFor } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { TestBrowser } from '../support/authorization-server.ts';
import { describeFault, type Scenario } from '../support/describe-fault.ts';
import { eventually } from '../support/eventually.ts';
import { OPERATOR, SUBJECTS, type Subject } from './support/subjects.ts';
import { World } from './support/world.ts';

/** Decisions and sign-ins in turns that wait, messages for turns and pauses, while the processes around them are killed. */

/** A time that passes while everything is killed, or before. */
const TIMED_SECONDS = 3;

let it: World;
beforeAll(async () => {
  it = await World.start({ apis: 2, hasVault: true, spec: { config: { pause: 'wait', on_unknown: 'ask' } } });
});
afterAll(() => it.checkAndStop());

interface Waiting {
  turn: RecordedTurn;
  calls: string[];
  decide: (status: 'allow' | 'deny', call?: number, by?: Subject) => Promise<number>;
}

/** A turn that waits for approvals of two refunds. */
async function waiting(): Promise<Waiting> {
  const plan = it.plan({ say: 'I will pay back.', tools: [{ name: 'refund' }, { name: 'refund' }] }, { say: 'Paid.' });
  const sessionId = await it.session();
  const turn = await it.turn(sessionId, plan);
  await turn.until((frames) => frames.some(({ type }) => type === 'turn.paused'));
  const calls = [0, 1].map((i) => `${plan.id}_0_${i}`);
  const owner = it.recorder.ownerOf(sessionId);
  return {
    turn,
    calls,
    decide: (status, call = 0, by = owner) =>
      it.recorder.decide({ sessionId, toolCallId: calls[call] ?? '', status, by }),
  };
}

/** Waits until so many commands are in the histories of the turn's runs. */
async function received({ turnId }: RecordedTurn, count: number): Promise<void> {
  const operator = await it.temporal.operator();
  const commands = async () => {
    const events = await operator.events(turnWorkflowId(turnId));
    return events.filter((event) => event.workflowExecutionSignaledEventAttributes).length;
  };
  await eventually(async () => expect(await commands()).toBe(count));
}

const outcomes = ({ turn, calls }: Waiting) =>
  calls.map((id) =>
    turn.frames.flatMap((one) => (one.type === 'tool.response' && one.tool_call_id === id ? [one] : [])),
  );

test('decided while no worker runs: each decision is acknowledged once the turn has recorded it', async () => {
  const [worker] = it.workers;
  const one = await waiting();
  await it.fault(() => worker?.kill());
  const sent = [one.decide('allow'), one.decide('deny', 1)];
  await received(one.turn, 2);
  await worker?.start();
  expect(await Promise.all(sent)).toEqual([200, 200]);
  expect(await one.turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
  expect(outcomes(one)).toMatchObject([[{ outcome: 'succeeded' }], [{ outcome: 'denied' }]]);
});

test('the API is killed between a decision and its response: the repetition is acknowledged, and counts once', async () => {
  const [worker] = it.workers;
  const one = await waiting();
  await it.fault(() => worker?.kill());
  const sent = [one.decide('allow'), one.decide('allow', 1)];
  await received(one.turn, 2);
  // The responses wait for the turn. With both APIs gone, the recorder repeats both requests.
  await it.fault(() => Promise.all(it.apis.map((api) => api.kill())));
  await it.up();
  expect(await Promise.all(sent)).toEqual([200, 200]);
  expect(await one.turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
  expect(outcomes(one)).toMatchObject([[{ outcome: 'succeeded' }], [{ outcome: 'succeeded' }]]);
});

test('two contrary decisions in one workflow task: the first one counts, the other gets an error', async () => {
  const [worker] = it.workers;
  const one = await waiting();
  expect(await one.decide('deny', 1)).toBe(200);
  await it.fault(() => worker?.kill());
  const first = one.decide('deny');
  await received(one.turn, 2);
  const second = one.decide('allow');
  await received(one.turn, 3);
  await worker?.start();
  expect(await Promise.all([first, second])).toEqual([200, 409]);
  expect(await one.turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
  expect(outcomes(one)).toMatchObject([[{ outcome: 'denied' }], [{ outcome: 'denied' }]]);
  expect(
    await it.recorder.decide({ sessionId: one.turn.sessionId, toolCallId: 'x', status: 'allow', by: OPERATOR }),
  ).toBe(409);
});

const BEFORE_THE_CRASH: Record<string, Scenario> = {
  'around a message and a pause: both count once, and the paused turn does nothing': async () => {
    const [worker] = it.workers;
    const plan = it.plan({ say: 'Let me think about it.', hold: 1 }, { say: 'I see.' });
    const sessionId = await it.session();
    const turn = await it.turn(sessionId, plan);
    await turn.until((frames) => frames.some((frame) => frame.type === 'model.message.delta'));
    await it.fault(() => worker?.kill());
    const sent = [it.recorder.steer(sessionId, 'And this?'), it.recorder.control(sessionId, 'pause')];
    await received(turn, 2);
    // The responses wait for the turn. With both APIs gone, the recorder repeats both requests.
    await it.fault(() => Promise.all(it.apis.map((api) => api.kill())));
    await it.up();
    expect(await Promise.all(sent)).toEqual([{ turnId: turn.turnId, isNew: false }, 200]);
    const isWhole = ({ frames }: RecordedTurn) =>
      frames.some((frame) => frame.type === 'model.message.delta' && frame.finish_reason === 'stop');
    await turn.until(() => isWhole(turn));
    return async () => {
      expect(it.planned.attempts(plan, 1)).toBe(0);
      expect(await it.recorder.control(sessionId, 'resume')).toBe(200);
      expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'I see.' } });
      const types = turn.frames.flatMap(({ type }) => (/^turn\.(paused|resumed)|^user/.test(type) ? [type] : []));
      expect([types.slice(0, 2).toSorted(), types.slice(2)]).toEqual([
        ['turn.paused', 'user.steered'],
        ['turn.resumed'],
      ]);
      const { messages = [] } = it.requestsFor(plan).at(-1) ?? {};
      expect(messages.slice(-2).map(({ content }) => content)).toEqual(['Let me think about it.', 'And this?']);
    };
  },

  'after a worker that was killed after the effects, one with edited arguments: a person says what happened, or has the call run again':
    async () => {
      const [worker] = it.workers;
      const tools = [{ name: 'pay', args: { first: 'hang' } }, { name: 'refund' }];
      const plan = it.plan({ say: 'I will pay.', tools }, { say: 'Paid.' });
      const sessionId = await it.session();
      const owner = it.recorder.ownerOf(sessionId);
      const turn = await it.turn(sessionId, plan);
      const [again = '', told = ''] = [0, 1].map((i) => `${plan.id}_0_${i}`);
      await turn.until((frames) => frames.some(({ type }) => type === 'tool.approval_required'));
      const edited = { first: 'hang', amount: 7 };
      expect(await it.recorder.decide({ sessionId, toolCallId: told, status: 'allow', edited, by: owner })).toBe(200);
      for (const id of [again, told]) await it.ledger.reached(`/${id}`);
      await it.fault(() => worker?.kill());
      await worker?.start();
      await turn.until((frames) => {
        const asked = frames.flatMap((one) => (one.type === 'tool.response_required' ? one.tool_calls : []));
        return asked.filter((one) => one.unknown_outcome).length === 2;
      });
      return async () => {
        expect(await it.recorder.decide({ sessionId, toolCallId: again, status: 'allow', by: owner })).toBe(200);
        await turn.until((frames) => frames.some(({ type }) => type === 'tool.response'));
        const response = { type: 'user.tool_response', thread_id: 'main', tool_call_id: told, content: 'It was paid.' };
        const path = `/v1/agents/sessions/${sessionId}/actions`;
        const { status } = await it.recorder.persist((api) => api.send('POST', path, { input: [response] }), {
          as: owner,
        });
        expect(status).toBe(200);
        expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
        expect(await it.outcomes(sessionId)).toEqual({ [again]: 'succeeded', [told]: 'succeeded' });
        const runs = [again, told].map((id) =>
          it.ledger.effects.filter(({ operation }) => operation.endsWith(`/${id}`)),
        );
        expect(runs.map((its) => new Set(its.map(({ operation }) => operation)).size)).toEqual([1, 1]);
        expect(runs.map((its) => its.length)).toEqual([2, 1]);
        expect(runs[1]).toMatchObject([{ tool: 'refund', arguments: edited }]);
      };
    },

  'while approvals expire and escalate: both once, and who decides from then on may do so': async () => {
    const asks = (what: string, policy: object) => ({
      match: { tool: 'refund', arguments: { '/what': { const: what } } },
      decision: 'ask',
      ...policy,
    });
    const decision_policies = [
      asks('flowers', { expires_in_seconds: TIMED_SECONDS }),
      asks('shoes', {
        approvers: { roles: ['approver'] },
        escalate: { after_seconds: TIMED_SECONDS, to: { roles: ['admin'] } },
      }),
    ];
    const mcp_servers = [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: [] }];
    await it.putAgent('timed', {
      model: { name: 'planned' },
      mcp_servers,
      config: { pause: 'wait', decision_policies },
    });
    const tools = ['flowers', 'shoes'].map((what) => ({ name: 'refund', args: { what } }));
    const plan = it.plan(
      { say: 'Let me look.', tools: [{ name: 'look' }] },
      { say: 'I pay back.', tools },
      { say: 'Paid.' },
    );
    const sessionId = await it.session({ agent: 'timed' });
    const turn = await it.turn(sessionId, plan);
    const [flowers = '', shoes = ''] = [0, 1].map((i) => `${plan.id}_1_${i}`);
    await turn.until((frames) => frames.some(({ type }) => type === 'turn.paused'));
    const refused = await it.recorder.decide({ sessionId, toolCallId: shoes, status: 'allow', by: OPERATOR });
    return async () => {
      expect(refused).toBe(403);
      const decided = () =>
        turn.frames.flatMap((one) => (one.type === 'tool.decided' ? [`${one.decision} ${one.tool_call_id}`] : []));
      await turn.until(() => decided().length === 2);
      expect(decided().toSorted()).toEqual([`escalated ${shoes}`, `expired ${flowers}`]);
      const owner = it.recorder.ownerOf(sessionId);
      expect(await it.recorder.decide({ sessionId, toolCallId: flowers, status: 'allow', by: owner })).toBe(409);
      expect(await it.recorder.decide({ sessionId, toolCallId: shoes, status: 'allow', by: OPERATOR })).toBe(200);
      expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
      expect(await it.outcomes(sessionId)).toMatchObject({ [flowers]: 'expired', [shoes]: 'succeeded' });
    };
  },

  'while the turn waits, between two decisions': async () => {
    const one = await waiting();
    expect(await one.decide('allow')).toBe(200);
    await one.turn.until((frames) => frames.some(({ type }) => type === 'tool.response'));
    return async () => {
      expect(await one.decide('allow', 1)).toBe(200);
      expect(await one.turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
    };
  },

  'behind a turn with a queue, which survives its session too: each turn begins once, in the order of the requests':
    async () => {
      const one = await waiting();
      const { sessionId } = one.turn;
      const queued: RecordedTurn[] = [];
      for (const say of ['First.', 'Second.', 'Third.']) {
        const message = { type: 'user.message', content: messageFor(it.plan({ say })) };
        const { turnId = '' } = await it.recorder.send(sessionId, [message], 'queue');
        queued.push(it.recorder.follow(sessionId, turnId));
      }
      await (await it.temporal.operator()).client.workflow.getHandle(sessionWorkflowId(sessionId)).terminate();
      return async () => {
        expect(await Promise.all([one.decide('allow'), one.decide('allow', 1)])).toEqual([200, 200]);
        // Housekeeping has started the session: no command arrives.
        const outputs = queued.map(async ({ done }) => done);
        expect(await Promise.all(outputs)).toMatchObject(
          ['First.', 'Second.', 'Third.'].map((content) => ({ status: 'done', output: { content } })),
        );
        const previous = queued.map(
          ({ frames }) => frames.findLast((one) => one.type === 'turn.created')?.previous_turn_id,
        );
        expect(previous).toEqual([one.turn, ...queued].slice(0, 3).map(({ turnId }) => turnId));
      };
    },

  'around a budget and its raise: no call is made above it, and the raise counts once': async () => {
    const [worker] = it.workers;
    const mcp_servers = [...it.servers.keys()].map((name) => ({ type: 'truefoundry-mcp-registry', name }));
    const config = { budget: { scope: 'session', steps: 1 } };
    await it.putAgent('frugal', { model: { name: 'planned' }, mcp_servers, config });
    const plan = it.plan({ say: 'Let me look.', tools: [{ name: 'look' }] }, { say: 'I see.' });
    const sessionId = await it.session({ agent: 'frugal' });
    const turn = await it.turn(sessionId, plan);
    await turn.until((frames) => frames.some(({ type }) => type === 'turn.paused'));
    return async () => {
      expect(it.planned.attempts(plan, 1)).toBe(0);
      await it.fault(() => worker?.kill());
      const path = `/v1/agents/sessions/${sessionId}/resume`;
      const as = it.recorder.ownerOf(sessionId);
      const raise = it.recorder.persist((api) => api.send('POST', path, { budget: { steps: 2 } }), { as });
      await received(turn, 1);
      // The response waits for the turn. With both APIs gone, the recorder repeats the request.
      await it.fault(() => Promise.all(it.apis.map((api) => api.kill())));
      await it.up();
      expect((await raise).status).toBe(200);
      expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'I see.' } });
      expect(it.planned.attempts(plan, 1)).toBe(1);
      const pauses = turn.frames.filter(({ type }) => /^turn\.(paused|resumed)$/.test(type));
      expect(pauses).toMatchObject([
        { type: 'turn.paused', reason: 'budget', budget: { limit: { steps: 1 }, spent: { steps: 1 } } },
        { type: 'turn.resumed', reason: 'budget', budget: { limit: { steps: 2 }, spent: { steps: 1 } } },
      ]);
    };
  },
};

describeFault('everything is killed', {
  fault: async () => {
    await it.crash();
    await it.recover();
  },
  scenarios: BEFORE_THE_CRASH,
});

/** A turn that pays and then syncs at the server that requires a sign-in. */
async function requiringSignIn(subject: Subject, pause: 'end' | 'wait') {
  const [pay, sync] = [{ name: 'pay' }, { name: 'sync', args: { hold: 'signed in' } }];
  const plan = it.plan({ say: 'I pay.', tools: [pay] }, { say: 'I note it.', tools: [sync] }, { say: 'Done.' });
  const sessionId = await it.session({ agent: `vault-${pause}`, subject });
  const turn = await it.turn(sessionId, plan);
  /** The link to sign in, once the turn has ended or waits. */
  const link = async (): Promise<string> => {
    await turn.until((frames) => frames.some(({ type }) => type === 'turn.paused' || type === 'turn.done'));
    const request = turn.frames.find((frame) => frame.type === 'mcp.auth_required');
    return request?.mcp_servers[0]?.auth_url ?? '';
  };
  const isSyncing = () => it.ledger.started(`/${plan.id}_1_0`);
  return { turn, sessionId, plan, link, isSyncing };
}

test('processes are killed around the refusal, the callback and the resumption of sign-ins: each user has one token', async () => {
  const [api] = it.apis;
  const [worker] = it.workers;
  const vault = it.vault ?? expect.fail('it has one');
  const mcp_servers = [{ type: 'truefoundry-mcp-registry', name: 'vault', require_approval_for_tools: [] }];
  for (const pause of ['end', 'wait']) {
    await it.putAgent(`vault-${pause}`, { model: { name: 'planned' }, mcp_servers, config: { pause } });
  }
  const [refused, killed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  vault.onMetadata = () => {
    refused.resolve();
    return killed.promise;
  };
  const [ann, bob] = SUBJECTS;
  const [annEnds, annWaits, bobEnds, bobWaits] = await Promise.all([
    requiringSignIn(ann, 'end'),
    requiringSignIn(ann, 'wait'),
    requiringSignIn(bob, 'end'),
    requiringSignIn(bob, 'wait'),
  ]);
  await refused.promise;
  await it.fault(() => worker?.kill());
  killed.resolve();
  await worker?.start();

  // The API is lost with the token that it has just got. The link is still valid.
  const browser = new TestBrowser();
  const link = await annWaits.link();
  const callback = await browser.open(link, ({ pathname }) => pathname.endsWith('/callback'));
  const lost = Promise.withResolvers<unknown>();
  vault.provider.once('grant.success', () => lost.resolve(it.fault(() => api?.kill())));
  await expect(browser.visit(callback.url.href)).rejects.toThrow('fetch failed');
  await lost.promise;
  await it.up();
  expect((await browser.open(link)).text).toContain('You are signed in to vault');
  await annEnds.link();
  const annGoesOn = await it.recorder.turn(annEnds.sessionId, []);
  await Promise.all([annEnds.isSyncing(), annWaits.isSyncing()]);

  // The calls of one user are lost, and the turn of the other one gets the sign-in while no worker runs.
  const bobsLink = await bobEnds.link();
  await bobWaits.link();
  vault.user.name = 'bob@idp';
  await it.fault(() => worker?.kill());
  expect((await new TestBrowser().open(bobsLink)).text).toContain('You are signed in to vault');
  await it.fault(() => Promise.all(it.apis.map((one) => one.kill())));
  await it.up();
  const bobGoesOn = await it.recorder.turn(bobEnds.sessionId, []);
  await Promise.all([bobEnds.isSyncing(), bobWaits.isSyncing()]);
  it.ledger.goOn('signed in');
  const done = { status: 'done', output: { content: 'Done.' }, required_actions: [] };
  for (const turn of [annGoesOn, annWaits.turn, bobGoesOn, bobWaits.turn]) expect(await turn.done).toMatchObject(done);
  for (const [subject, turns, user] of [
    [ann, [annEnds, annWaits], 'ann@idp'],
    [bob, [bobEnds, bobWaits], 'bob@idp'],
  ] as const) {
    for (const { sessionId, plan } of turns) {
      const calls = [0, 1].map((step) => `${plan.id}_${step}_0`);
      expect(await it.outcomes(sessionId)).toEqual(Object.fromEntries(calls.map((id) => [id, 'succeeded'])));
      const its = it.ledger.effects.filter(({ operation }) => calls.some((id) => operation.endsWith(`/${id}`)));
      const tokens = [...new Set(its.map(({ token = '' }) => token))];
      const found = await Promise.all(tokens.map((token) => vault.provider.AccessToken.find(token)));
      expect(found.map((token) => token?.accountId)).toEqual([user]);
      // The inbox of the user had the sign-in of the turn once, and has its end.
      const endsInInbox = async () => {
        const actions = await it.recorder.as(subject).list<ActionResource>('/v1/agents/actions?status=decided');
        const its = actions.filter(({ kind, session_id: id }) => kind === 'sign_in' && id === sessionId);
        return its.map(({ status, decisions }) => [status, ...decisions.map(({ decision }) => decision)]);
      };
      await expect.poll(endsInInbox).toEqual([['decided', 'allow']]);
    }
  }
});
