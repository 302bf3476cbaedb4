import { z } from 'zod';
import type { BudgetAmounts } from '../../core/budget.ts';
import type { Caller } from '../../core/subject.ts';
import { authorizeSession } from '../../engine/access.ts';
import { controlTurn } from '../../engine/control-turn.ts';
import { budgetAmounts, limitsOf } from '../../spec/budget-spec.ts';
import type { ApiContext } from '../http/context.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';

const route = routesOf('Turns');

const nothing = z.strictObject({});

/** What a caller does to the running turn of a session or draft, apart from cancelling it. */
export function steeringRoutes(context: ApiContext): Route[] {
  return [
    route('post', '/v1/agents/sessions/:session_id/pause', {
      id: 'pauseTurn',
      summary: 'Pause the running turn',
      description:
        'It begins no further model call and no further tool call, in any of its threads; what runs ends normally. Its ' +
        'time limit stops. The response is sent once the turn has recorded it. A repetition changes nothing.',
      body: json(nothing, {}),
      response: json(nothing, {}),
      errors: ['forbidden', 'nothing_running'],
      handler: ({ params, caller }) => control('pause', params.session_id, caller),
    }),
    route('post', '/v1/agents/sessions/:session_id/resume', {
      id: 'resumeTurn',
      summary: 'Resume the paused turn',
      description:
        'It continues where it was paused. For a turn that is not paused, this changes nothing. `budget` raises the ' +
        'limits that it names: a turn whose budget was reached continues only above what was spent.',
      body: json(z.strictObject({ budget: budgetAmounts.optional() }), {}),
      response: json(nothing, {}),
      errors: ['forbidden', 'nothing_running', 'budget_exceeded'],
      handler: ({ params, body, caller }) =>
        control('resume', params.session_id, caller, body.budget && limitsOf(body.budget)),
    }),
    route('post', '/v1/agents/sessions/:session_id/force_answer', {
      id: 'forceAnswer',
      summary: 'Have the running turn answer now',
      description:
        'Its next model call may use no tools, and ends the turn; so do those of its sub-agents. Tools that run end ' +
        'before, code is interrupted. Calls that wait for answers end as cancelled, and a paused turn is resumed, unless its budget was ' +
        'reached: it has to be raised first.',
      body: json(nothing, {}),
      response: json(nothing, {}),
      errors: ['forbidden', 'nothing_running', 'budget_exceeded'],
      handler: ({ params, caller }) => control('force_answer', params.session_id, caller),
    }),
  ];

  async function control(
    type: 'pause' | 'resume' | 'force_answer',
    sessionId: string,
    caller: Caller,
    budget?: BudgetAmounts,
  ): Promise<Record<string, never>> {
    const session = await authorizeSession(context.catalog, sessionId, caller, 'cancel');
    await controlTurn(context, { session, caller, type, ...(budget && { budget }) });
    return {};
  }
}
