-- +goose Up
-- The whole of Tranche's state. Instants are timestamptz in UTC; amounts are
-- ledger units (1 = 1 milli-GPU-second at rate 1.000); durations are whole ms.
-- Constraint names are stable: store/refusals.go turns them into sentences.

create extension if not exists btree_gist;

-- People -------------------------------------------------------------------
create table persons (
  id          bigint generated always as identity primary key,
  issuer      text not null,
  subject     text not null,
  created_at  timestamptz not null,
  disabled_at timestamptz,
  constraint persons_identity_key unique (issuer, subject)
);
-- Names live apart so that they can be erased while the books keep person ids.
create table person_names (
  person_id bigint primary key references persons on delete cascade,
  name      text not null,
  email     text not null default '',
  username  text not null default ''
);

-- The tree -----------------------------------------------------------------
create table groups (
  id            bigint generated always as identity primary key,
  parent_id     bigint references groups,
  kind          text not null check (kind in ('program', 'project')),
  slug          text not null constraint groups_slug_form check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  title         text not null constraint groups_title_length check (length(title) between 1 and 200),
  path          text not null constraint groups_path_key unique,
  cost_centre   text not null default '',
  overcommit_ppm bigint not null default 1000000 check (overcommit_ppm between 1000000 and 10000000),
  created_at    timestamptz not null,
  suspended_at  timestamptz,
  archived_at   timestamptz,
  constraint groups_one_root check (parent_id is not null or kind = 'program')
);
create unique index groups_root_key on groups ((true)) where parent_id is null;
create index groups_parent on groups (parent_id);

create table role_grants (
  id         bigint generated always as identity primary key,
  person_id  bigint not null references persons,
  role       text not null check (role in ('researcher', 'pi', 'manager', 'admin', 'finance', 'operator', 'auditor')),
  group_id   bigint not null references groups,
  source     text not null default 'manual' check (source in ('manual', 'identity', 'deputy', 'invite')),
  until      timestamptz,
  granted_by bigint references persons,
  granted_at timestamptz not null,
  revoked_at timestamptz
);
create unique index role_grants_live_key on role_grants (person_id, role, group_id, source) where revoked_at is null;
create index role_grants_group on role_grants (group_id) where revoked_at is null;
-- Groups of the identity provider that carry a role at a path.
create table identity_roles (
  identity_group text not null,
  role           text not null,
  group_id       bigint not null references groups,
  primary key (identity_group, role, group_id)
);
-- A member's share and cap inside a project.
create table member_shares (
  project_id bigint not null references groups,
  person_id  bigint not null references persons,
  share      bigint not null default 1 check (share between 1 and 1000000),
  primary key (project_id, person_id)
);
create table join_requests (
  id         bigint generated always as identity primary key,
  person_id  bigint not null references persons,
  project_id bigint not null references groups,
  note       text not null default '',
  state      text not null default 'open' check (state in ('open', 'approved', 'denied', 'withdrawn')),
  asked_at   timestamptz not null,
  decided_by bigint references persons,
  decided_at timestamptz
);
create unique index join_requests_open_key on join_requests (person_id, project_id) where state = 'open';
create table invites (
  id          bigint generated always as identity primary key,
  project_id  bigint not null references groups,
  role        text not null default 'researcher',
  email       text not null,
  token_hash  bytea not null unique,
  invited_by  bigint not null references persons,
  invited_at  timestamptz not null,
  expires_at  timestamptz not null,
  accepted_by bigint references persons,
  accepted_at timestamptz
);
create table api_tokens (
  id            bigint generated always as identity primary key,
  person_id     bigint not null references persons,
  project_id    bigint references groups,
  name          text not null check (length(name) between 1 and 200),
  token_hash    bytea not null constraint api_tokens_hash_key unique,
  spending_limit bigint check (spending_limit > 0),
  held_or_spent bigint not null default 0,
  created_at    timestamptz not null,
  expires_at    timestamptz not null,
  last_used_at  timestamptz,
  revoked_at    timestamptz,
  constraint api_tokens_limit check (spending_limit is null or held_or_spent <= spending_limit)
);
create table sessions (
  token  text primary key,
  data   bytea not null,
  expiry timestamptz not null
);
create index sessions_expiry on sessions (expiry);

-- Pools, nodes ---------------------------------------------------------------
create table pools (
  id         bigint generated always as identity primary key,
  name       text not null constraint pools_name_key unique check (name ~ '^[a-z0-9][a-z0-9.-]{0,62}$'),
  gpu_model  text not null default '',
  rate_ppm   bigint not null default 1000000 check (rate_ppm > 0),
  node_gpus  bigint not null check (node_gpus >= 0),      -- of the reference node: charged parts are taken from it
  node_cpu_milli bigint not null check (node_cpu_milli > 0),
  node_ram_mib   bigint not null check (node_ram_mib > 0),
  node_hbm_mib   bigint not null default 0,               -- per device
  frozen_at  timestamptz,                                  -- storm: nothing new is placed, nothing counts as lost
  frozen_why text not null default '',
  created_at timestamptz not null
);
create table enrol_tokens (
  id         bigint generated always as identity primary key,
  pool_id    bigint not null references pools,
  token_hash bytea not null unique,
  created_by bigint references persons,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  uses_left  int not null default 1 check (uses_left >= 0)
);
create table nodes (
  id         bigint generated always as identity primary key,
  name       text not null constraint nodes_name_key unique check (length(name) between 1 and 200),
  pool_id    bigint not null references pools,
  token_hash bytea not null unique,
  topology   text not null default '',
  cpu_milli  bigint not null, ram_mib bigint not null,
  net_mbps   bigint not null default 0, sto_mbps bigint not null default 0, ioc_milli bigint not null default 0,
  boot_id    text not null default '',
  agent_version text not null default '',
  simulated  boolean not null default false,
  enrolled_at timestamptz not null,
  enrol_token_id bigint references enrol_tokens,
  -- liveness is real time
  heartbeat_at timestamptz,
  health     text not null default 'healthy' check (health in ('healthy', 'suspect', 'lost')),
  health_since timestamptz not null,
  health_why text not null default '',
  drain      text not null default '' check (drain in ('', 'soft', 'hard')), -- asked for by an operator
  drain_since timestamptz,
  drain_why  text not null default '',
  drain_by   bigint references persons,
  orders     bigint not null default 0,                    -- version of the node's desired state; agents poll for a newer one
  retired_at timestamptz
);
create table devices (
  node_id  bigint not null references nodes on delete cascade,
  idx      int not null,
  uuid     text not null,
  model    text not null,
  hbm_mib  bigint not null,
  dead     boolean not null default false,
  util_pct int not null default 0,
  hbm_used_mib bigint not null default 0,
  seen_at  timestamptz,
  primary key (node_id, idx)
);
create table node_telemetry (
  node_id  bigint not null,
  at       timestamptz not null,
  util_pct int[] not null,
  hbm_used_mib bigint[] not null,
  primary key (node_id, at)
);

-- Periods, pots ----------------------------------------------------------------
create table periods (
  id     bigint generated always as identity primary key,
  name   text not null constraint periods_name_key unique,
  first  timestamptz not null,
  last   timestamptz not null,
  zone   text not null,
  state  text not null default 'open' check (state in ('planned', 'open', 'closed')),
  opened_at timestamptz,
  constraint periods_order check (first < last),
  constraint periods_apart exclude using gist (tstzrange(first, last) with &&)
);
create table period_supply (
  period_id bigint not null references periods,
  pool_id   bigint not null references pools,
  devices   bigint not null check (devices > 0),
  availability_ppm bigint not null check (availability_ppm between 1 and 1000000),
  amount    bigint not null check (amount > 0),
  primary key (period_id, pool_id)
);
-- What each child was split, by version; the newest version counts.
create table splits (
  id         bigint generated always as identity primary key,
  program_id bigint not null references groups,
  pool_id    bigint not null references pools,
  period_id  bigint not null references periods,
  version    int not null,
  made_by    bigint not null references persons,
  made_at    timestamptz not null,
  constraint splits_version_key unique (program_id, pool_id, period_id, version)
);
create table split_parts (
  split_id bigint not null references splits,
  child_id bigint not null references groups,
  ppm      bigint check (ppm between 0 and 10000000),      -- null: given in GPU-hours
  amount   bigint not null check (amount >= 0),
  primary key (split_id, child_id)
);

-- Requests, lots ---------------------------------------------------------------
create table requests (
  id          bigint generated always as identity primary key,
  kind        text not null default 'new' check (kind in ('new', 'top-up', 'extension', 'decrease', 'transfer')),
  project_id  bigint references groups,                    -- null while it proposes a project
  program_id  bigint not null references groups,           -- whose pot pays
  period_id   bigint not null references periods,
  proposed    jsonb,                                       -- {slug,title,cost_centre,members}
  author_id   bigint not null references persons,
  title       text not null check (length(title) between 1 and 200),
  purpose     text not null,
  outcome     text not null default '',
  deadline    timestamptz,
  state       text not null check (state in ('draft', 'submitted', 'returned', 'awarded', 'denied', 'withdrawn')),
  version     int not null default 1,
  created_at  timestamptz not null,
  changed_at  timestamptz not null,
  submitted_at timestamptz,
  decided_at  timestamptz,
  decided_by  bigint references persons,
  reason      text not null default '',
  constraint requests_target check (project_id is not null or proposed is not null),
  constraint requests_reviewer_not_author check (decided_by is null or decided_by <> author_id)
);
create index requests_by_state on requests (state, id);
create table request_lines (
  request_id bigint not null references requests,
  pool_id    bigint not null references pools,
  asked      bigint not null constraint request_lines_asked check (asked > 0),
  awarded    bigint check (awarded >= 0),
  primary key (request_id, pool_id)
);
create table request_events (
  id         bigint generated always as identity primary key,
  request_id bigint not null references requests,
  at         timestamptz not null,
  person_id  bigint references persons,
  action     text not null,
  note       text not null default '',
  detail     jsonb
);
create index request_events_request on request_events (request_id, id);
create table lots (
  id         bigint generated always as identity primary key,
  project_id bigint not null references groups,
  pool_id    bigint not null references pools,
  period_id  bigint not null references periods,
  program_id bigint not null references groups,            -- whose pot paid
  first      timestamptz not null,
  last       timestamptz not null,
  amount     bigint not null check (amount >= 0),          -- as awarded
  kind       text not null default 'award' check (kind in ('award', 'split', 'bridge')),
  request_id bigint references requests,
  created_at timestamptz not null,
  constraint lots_order check (first < last)
);
create index lots_project on lots (project_id, pool_id, last);

-- Ledger -----------------------------------------------------------------------
create table accounts (
  id        bigint generated always as identity primary key,
  kind      smallint not null,                             -- ledger.AccountKind
  pool_id   bigint not null,
  period_id bigint not null default 0,
  group_id  bigint not null default 0,
  lot_id    bigint not null default 0,
  constraint accounts_identity_key unique (kind, pool_id, period_id, group_id, lot_id)
);
create table balances (
  account_id bigint primary key references accounts,
  balance    bigint not null default 0,
  floor      bigint not null,
  ceiling    bigint not null,
  constraint balances_floor check (balance >= floor),
  constraint balances_ceiling check (balance <= ceiling)
);
create table entries (
  id        bigint generated always as identity primary key,
  key       text collate "C" not null constraint entries_key_key unique, -- C: found by prefix, whatever the database's collation
  kind      text not null,
  at        timestamptz not null,
  period_id bigint not null default 0,
  actor_id  bigint not null default 0,
  hash      bytea not null,
  xid       xid8 not null default pg_current_xact_id()     -- sealing goes by transaction, never by id
);
create index entries_xid on entries (xid);
create index entries_at on entries (at);
create table transfers (
  entry_id bigint not null references entries,
  n        int not null,
  debit    bigint not null references accounts,
  credit   bigint not null references accounts,
  amount   bigint not null constraint transfers_amount check (amount > 0),
  hash     bytea not null,
  primary key (entry_id, n),
  constraint transfers_two_accounts check (debit <> credit)
);
create index transfers_debit on transfers (debit);
create index transfers_credit on transfers (credit);
create table seals (
  n       bigint primary key,
  at      timestamptz not null,
  prev    bytea not null,
  from_xid xid8 not null,
  to_xid  xid8 not null,
  entries bigint not null,
  hash    bytea not null
);
-- One counter per program with an overcommit factor above 1.
create table path_limits (
  program_id bigint not null references groups,
  pool_id    bigint not null references pools,
  period_id  bigint not null references periods,
  received   bigint not null,
  used       bigint not null default 0,
  primary key (program_id, pool_id, period_id),
  constraint path_limits_used check (used >= 0),
  constraint path_limits_received check (used <= received)
);

-- Jobs -------------------------------------------------------------------------
create sequence queue_seq;
create sequence fence_seq;
create table jobs (
  id          bigint generated always as identity primary key,
  project_id  bigint not null references groups,
  pool_id     bigint not null references pools,
  member_id   bigint not null references persons,
  token_id    bigint references api_tokens,
  name        text not null default '' check (length(name) <= 200),
  preset      text not null default '',
  nodes       bigint not null check (nodes >= 1),
  gpus        bigint not null check (gpus >= 0),           -- per node
  gpu_milli   bigint not null default 1000 check (gpu_milli between 1 and 1000),
  cpu_milli   bigint not null check (cpu_milli > 0),       -- per node
  ram_mib     bigint not null check (ram_mib > 0),         -- per node
  milli_gpu   bigint not null check (milli_gpu >= 1),      -- charged, whole job
  rate_ppm    bigint not null check (rate_ppm > 0),
  min_ms      bigint not null check (min_ms >= 0),
  grace_ms    bigint not null check (grace_ms >= 0),
  max_ms      bigint not null check (max_ms > 0),
  resumable   boolean not null,
  stop_on_money boolean not null,
  or_free     boolean not null,
  max_charge  bigint not null default 0,
  urgency     smallint not null default 0 check (urgency between 0 and 9),
  queue_seq   bigint not null,
  state       text not null check (state in ('pending', 'paused', 'live', 'finished', 'failed', 'cancelled')),
  submitted_at timestamptz not null,
  cancel_asked_at timestamptz,
  cancel_asked_by bigint references persons,
  finished_at timestamptz,
  exit_code   int,
  exit_signal int,
  result      text not null default '',                    -- scheduler.Result of a job that is over
  attempts    int not null default 0,
  charged     bigint not null default 0                    -- over all attempts, net of credits
);
create index jobs_pending on jobs (pool_id, project_id, urgency desc, queue_seq, id) where state = 'pending';
create index jobs_project on jobs (project_id, id desc);
create index jobs_member on jobs (member_id, id desc);
create index jobs_state on jobs (state, id desc);
-- scheduler.Reason of the last cycle that looked. Every cycle derives it anew, so
-- it need not survive a crash.
create unlogged table job_reasons (
  job_id bigint primary key,
  reason jsonb not null,
  at     timestamptz not null
);
-- Never read by snapshots, audit or exports.
create table job_commands (
  job_id      bigint primary key references jobs,
  command     text not null check (length(command) between 1 and 65536),
  workdir     text not null default '',
  env         jsonb not null default '{}',
  output_path text not null default '',
  checkpoint  text not null default ''                     -- '' | 'SIGUSR1' | command
);
create table attempts (
  id          bigint generated always as identity primary key,
  job_id      bigint not null references jobs,
  n           int not null,
  project_id  bigint not null references groups,
  pool_id     bigint not null references pools,
  fence       bigint not null default nextval('fence_seq'),
  phase       text not null check (phase in ('nominated', 'starting', 'running', 'ending', 'closed')),
  funded      boolean not null,                            -- charged to a budget now; false once money ended
  milli_gpu   bigint not null,                             -- charged, whole gang
  occupied_milli bigint not null,                          -- the devices it owns, whole gang
  rate_ppm    bigint not null,
  min_ms      bigint not null,                             -- 0 when started unfunded
  since       timestamptz not null,                        -- nominated or leased
  leased_at   timestamptz,
  started_at  timestamptz,                                 -- first claim: start of record
  protected_until timestamptz,                             -- latest member's claim + minimum
  funded_ms   bigint not null default 0,                   -- money ended at this elapsed time
  hold_until_ms bigint not null default 0,
  charged_ms  bigint not null default 0,                   -- charged_until, elapsed
  proven_ms   bigint not null default 0,
  prior       bigint not null default 0,                   -- charged to the job by earlier attempts
  charged     bigint not null default 0,                   -- units, gross
  credited    bigint not null default 0,                   -- units of charged, given back
  credit_from_ms bigint not null default 0,
  credit_to_ms bigint not null default 0,
  stop_asked_at timestamptz,                               -- signalled
  stop_rule   text not null default '',
  stop_ms     bigint not null default 0,                   -- elapsed up to which a stopped attempt pays
  stop_by_job bigint,                                      -- the preemptor
  stop_facts  jsonb,                                       -- scheduler.Evict: the numbers that decided
  checkpoint_at timestamptz,
  ended_at    timestamptz,
  elapsed_ms  bigint,                                      -- final
  recorded_until timestamptz,                              -- occupancy up to here is in usage_segments
  exit_code   int,
  exit_signal int,
  cause       text not null default '',                    -- finished, failed, preempted, cancelled, lost, timeout, funds, refused …
  start_facts jsonb,                                       -- scheduler.Start's path and rank
  constraint attempts_job_key unique (job_id, n)
);
create unique index attempts_live_key on attempts (job_id) where phase <> 'closed';
create index attempts_live on attempts (pool_id, id) where phase <> 'closed';
create table placements (
  attempt_id bigint not null references attempts,
  rank       int not null,
  node_id    bigint not null references nodes,
  devices    int[] not null,
  gpu_milli  bigint not null,
  cpu_milli  bigint not null,
  ram_mib    bigint not null,
  launcher   text not null default '',                     -- who claimed: the same one asking again gets the same answer
  claimed_at timestamptz,
  seen_ms    bigint not null default 0,                    -- last heartbeat's elapsed, business, since this member's claim
  elapsed_ms bigint not null default 0,                    -- of it taken into the life cycle
  term_ms    bigint not null default 0,                    -- elapsed at the server-ordered SIGTERM; 0 = never
  ended      boolean not null default false,
  ended_at   timestamptz,
  exit_code  int not null default 0,
  exit_signal int not null default 0,
  stopped    boolean not null default false,               -- ended after the server's SIGTERM
  lost       boolean not null default false,
  returns    boolean not null default false,               -- lost, but taken back if it still runs when its node is heard again
  detail     text not null default '',                     -- the agent's sentence about the end
  flagged    text not null default '',                     -- e.g. a claim longer than the server saw
  log_next   bigint not null default 0,                    -- output bytes taken so far
  log_cut    bigint not null default 0,                    -- of them no longer kept, after the head
  primary key (attempt_id, rank)
);
create index placements_node on placements (node_id) where not ended;
create index placements_returns on placements (node_id) where returns;
create table hold_pieces (
  attempt_id bigint not null references attempts,
  n          int not null,
  lot_id     bigint not null references lots,
  amount     bigint not null check (amount > 0),
  spent      bigint not null default 0,
  released   bigint not null default 0,
  primary key (attempt_id, n),
  constraint hold_pieces_sum check (spent >= 0 and released >= 0 and spent + released <= amount)
);
-- Occupancy as recorded when it became certain; charge 0 is written too.
create table usage_segments (
  id         bigint generated always as identity primary key,
  attempt_id bigint not null references attempts,
  project_id bigint not null references groups,
  pool_id    bigint not null references pools,
  member_id  bigint not null,
  class      text not null check (class in ('starting', 'funded', 'unfunded', 'ending', 'credited')),
  milli_gpu  bigint not null,                              -- as charged: what standings count
  occupied_milli bigint not null,                          -- devices owned
  first      timestamptz not null,
  last       timestamptz not null,
  xid        xid8 not null default pg_current_xact_id(),   -- snapshots read on from the oldest running transaction
  constraint usage_segments_order check (first < last)
);
create index usage_segments_xid on usage_segments (xid);
create index usage_segments_window on usage_segments (pool_id, last) where class in ('funded', 'unfunded');
create index usage_segments_attempt on usage_segments (attempt_id);
create table job_logs (
  attempt_id bigint not null references attempts,
  rank       int not null,
  "offset"   bigint not null,
  data       bytea not null,
  primary key (attempt_id, rank, "offset")
);
create table job_events (
  id         bigint generated always as identity primary key,
  job_id     bigint not null references jobs,
  attempt_n  int not null default 0,
  at         timestamptz not null,
  kind       text not null,                                -- submitted, started, protected-end, evicted, money-ended, finished …
  detail     jsonb
);
create index job_events_job on job_events (job_id, id);

-- Dispatcher -------------------------------------------------------------------
create table policies (
  version  bigint primary key,
  policy   jsonb not null,
  made_by  bigint references persons,
  made_at  timestamptz not null
);
create table leader (
  one    boolean primary key default true check (one),
  epoch  bigint not null default 0,
  holder text not null default '',
  beat   bigint not null default 0,
  since  timestamptz
);
insert into leader (one) values (true);
-- Apart from the leader row, whose share lock every leader transaction takes.
create table dispatcher (
  one    boolean primary key default true check (one),
  cycle  bigint not null default 0,
  bucket_milli_tokens bigint not null default 0,
  bucket_at timestamptz,
  last_instant timestamptz                                 -- the server's time line never goes back
);
insert into dispatcher (one) values (true);
-- The last plan's standings per pool: the very numbers the queue was sorted by.
create unlogged table standings (
  pool_id    bigint not null references pools,
  group_id   bigint not null references groups,
  usage      bigint not null,
  commitment bigint not null,
  micro_gpu  bigint not null,
  at         timestamptz not null,
  primary key (pool_id, group_id)
);

-- Audit, outbox, commands ------------------------------------------------------
create table audit (
  id        bigint generated always as identity primary key,
  at        timestamptz not null,
  person_id bigint not null default 0,
  remote    text not null default '',
  verb      text not null,
  subject   text not null,
  before    jsonb,
  after     jsonb
);
create table outbox (
  id         bigint generated always as identity primary key,
  at         timestamptz not null,
  kind       text not null,
  person_id  bigint references persons,
  subject    text not null,
  body       jsonb not null,
  tries      int not null default 0,
  sent_at    timestamptz,
  failed_why text not null default ''
);
create index outbox_open on outbox (id) where sent_at is null;
create table command_keys (
  actor_id     bigint not null,
  key          text not null,
  content_hash bytea not null,
  result       jsonb not null,
  at           timestamptz not null,
  primary key (actor_id, key)
);
create table cron_runs (
  job           text not null,
  scheduled_for timestamptz not null,
  started_at    timestamptz not null,
  finished_at   timestamptz,
  outcome       text not null default '',
  primary key (job, scheduled_for)
);
