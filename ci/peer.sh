# Sourced by ci/peer: its cases, and what they are made of. A case ends at the first command that
# fails; it runs in a shell and a folder of its own.
# shellcheck shell=bash disable=SC2034,SC2154

# --- programs beside a case -------------------------------------------------------------------

: >"$place/running"
# start NAME COMMAND...: runs it beside the case, its output in NAME.log; its process is $last.
start() {
    "${@:2}" >"$1.log" 2>&1 &
    last=$!
    echo "$last" >>"$place/running"
    echo "$last" >"$place/$1.pid"
}

# end_all: ends all that start began, in the shell of a case too.
end_all() {
    # shellcheck disable=SC2046
    kill $(cat "$place/running") 2>/dev/null || true
    wait
    : >"$place/running"
}

our_daemon() {
    start daemon watershed daemon -v --allow-output-path "$place"
    until_true watershed query
}

their_daemon() {
    start daemon traced
    until_true watershed query
}

their_probes() {
    start probes traced_probes
    until_true offers linux.ftrace linux.sys_stats
}

our_probes() {
    start probes watershed probes
    until_true offers linux.ftrace linux.sys_stats
}

# --- what can be asked ------------------------------------------------------------------------

# until_true COMMAND...: tries for 20 s.
until_true() {
    for _ in $(seq 200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "never came true: $*"
    return 1
}

fails() { if "$@"; then return 1; fi; }
gone() { ! kill -0 "$1"; }
offers() { for source in "$@"; do watershed query | grep -qw "$source" || return; done; }

# sessions STATE NAME COUNT: so many sessions of the service are in this state and have this name,
# any if it is empty.
sessions() {
    watershed query --json | jq -e --arg state "$1" --arg name "$2" --argjson count "$3" \
        '[.sessions[] | select(.state == $state and ($name == "" or .unique_session_name == $name))]
        | length == $count'
}

# whole TRACE KIND...: our reader finds no loss, and packets of these kinds.
whole() {
    watershed inspect --json "$1" >report.json || return
    jq -e '.completeness.verdict == "complete" and .losses == []' report.json >/dev/null ||
        { watershed inspect "$1"; return 1; }
    for kind in "${@:2}"; do
        holds "$kind" || { echo "$1 has no packet $kind"; return 1; }
    done
}
holds() { jq -e --arg kind "$1" 'any(.packets.by_kind[]; .kind == $kind)' report.json; }

# raw_config TRACE: the config that a trace holds, in bytes, without what has been added since.
raw_config() {
    python3 - "$1" <<'END'
import sys
def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        start = at
        if key & 7 == 2:
            size, start = varint(data, at)
            at = start + size
        elif key & 7 == 0:
            _, at = varint(data, at)
        else:
            at += 4 if key & 7 == 5 else 8
        yield key >> 3, data[start:at]
for _, packet in fields(open(sys.argv[1], "rb").read()):
    for number, value in fields(packet):
        if number == 33:
            sys.stdout.buffer.write(value)
            sys.exit()
END
}

# --- sessions ---------------------------------------------------------------------------------

# config LINE...: config.txt, which also asks for the memory statistics every 50 ms.
config() {
    printf '%s\n' 'buffers { size_kb: 8192 }' 'data_sources { config { name: "linux.sys_stats"' \
        '    sys_stats_config { meminfo_period_ms: 50 } } }' "$@" >config.txt
}

# recording STATE COMMAND: their_record or our_record beside the case, its session in this state.
recording() {
    start recorder "$2" "${@:3}"
    until_true sessions "$1" "" 1
}
their_record() { exec perfetto --txt -c config.txt -o trace; }
our_record() { exec watershed record --daemon -c config.txt -o trace; }

# record_some: what a recorder has for some periods of its data source.
record_some() { sleep 0.5; }

# their_end, our_end: a recorder that is told to end; ours says so by its exit code.
their_end() { kill -TERM "$last" && wait "$last"; }
our_end() {
    kill -TERM "$last"
    local code=0
    wait "$last" || code=$?
    [ $code = 143 ]
}

# their_trigger NAME: by their command for it, or by a config.
their_trigger() {
    if [ -x "$programs/trigger_perfetto" ]; then
        trigger_perfetto "$1"
    else
        trigger_from_config "$1"
    fi
}
trigger_from_config() { perfetto --txt -c - -o /dev/null <<<"activate_triggers: \"$1\""; }

# --- perfetto as the consumer -----------------------------------------------------------------

case_query() {
    perfetto --query --long >query.txt
    grep -qw linux.ftrace query.txt
    [ "$(perfetto --query-raw | wc -c)" -gt 100 ]
}

case_every_source() {
    perfetto --txt -c - -o trace <<'END'
buffers { size_kb: 32768 }
data_sources { config { name: "linux.ftrace" ftrace_config {
    ftrace_events: "sched/sched_switch" ftrace_events: "sched/sched_waking"
    ftrace_events: "power/cpu_idle" compact_sched { enabled: true } } } }
data_sources { config { name: "linux.process_stats" process_stats_config {
    scan_all_processes_on_start: true proc_stats_poll_ms: 200 } } }
data_sources { config { name: "linux.sys_stats" sys_stats_config {
    meminfo_period_ms: 100 stat_period_ms: 100 vmstat_period_ms: 100 } } }
data_sources { config { name: "linux.system_info" } }
duration_ms: 2000
END
    whole trace ftrace_events process_tree sys_stats system_info
}

# Every call of the kernel while processes walk through files.
case_many_events() {
    start load bash -c 'while :; do find /usr/share >/dev/null; done'
    perfetto --txt -c - -o trace <<'END'
buffers { size_kb: 393216 }
buffers { size_kb: 8192 }
data_sources { config { name: "linux.ftrace" target_buffer: 0 ftrace_config {
    ftrace_events: "sched/*" ftrace_events: "task/*" ftrace_events: "irq/*"
    ftrace_events: "raw_syscalls/sys_enter" ftrace_events: "raw_syscalls/sys_exit"
    buffer_size_kb: 32768 drain_period_ms: 100 } } }
data_sources { config { name: "linux.process_stats" target_buffer: 1
    process_stats_config { proc_stats_poll_ms: 100 } } }
duration_ms: 3000
END
    kill "$last"
    whole trace ftrace_events process_tree
}

case_light_flags() {
    perfetto -o trace -t 1s -b 32mb sched/sched_switch
    whole trace ftrace_events
}

case_light_flags_with_size() {
    perfetto -o trace -t 1s -b 16mb -s 32mb sched/sched_switch
    whole trace ftrace_events
}

case_to_standard_output() {
    config 'duration_ms: 300'
    perfetto --txt -c config.txt -o - >trace
    whole trace sys_stats
}

case_note() {
    config 'duration_ms: 300'
    perfetto --txt -c config.txt --add-note peer=yes -o trace
    whole trace sys_stats
}

case_interrupted() {
    config
    recording STARTED their_record
    record_some
    their_end
    whole trace sys_stats
}

case_background() {
    config
    pid=$(perfetto --txt -c config.txt -o trace --background 2>background.log)
    until_true sessions STARTED "" 1
    record_some
    kill -TERM "$pid"
    until_true whole trace sys_stats
}

case_background_wait() {
    config
    pid=$(perfetto --txt -c config.txt -o trace --background-wait 2>background.log)
    sessions STARTED "" 1
    record_some
    kill -TERM "$pid"
    until_true whole trace sys_stats
}

case_detach() {
    config 'write_into_file: true' 'file_write_period_ms: 100'
    perfetto --txt -c config.txt -o trace --detach=key
    perfetto --is_detached=key
    record_some
    perfetto --attach=key --stop
    whole trace sys_stats
    fails perfetto --is_detached=key
}

# Attached again, it waits for the end of the session; so it does without a file of the service.
case_attach_waits() {
    config 'write_into_file: true' 'file_write_period_ms: 100' 'duration_ms: 3000'
    perfetto --txt -c config.txt -o trace --detach=key
    perfetto --attach=key
    whole trace sys_stats
    fails perfetto --is_detached=key
}

case_detach_with_trigger() {
    config 'write_into_file: true' 'file_write_period_ms: 100' 'trigger_config {
        trigger_mode: START_TRACING trigger_timeout_ms: 30000
        triggers { name: "start_now" stop_delay_ms: 500 } }'
    perfetto --txt -c config.txt -o trace --detach=key
    start recorder perfetto --attach=key
    record_some
    their_trigger start_now
    wait "$last"
    whole trace sys_stats trigger
}

case_notify_fd() {
    config
    mkfifo told
    start recorder bash -c 'exec perfetto --txt -c config.txt -o trace --notify-fd 7 7>told'
    [ "$(od -An -tu1 -N1 told | tr -d ' ')" = 0 ]
    record_some
    their_end
    whole trace sys_stats
}

case_no_clobber() {
    config 'duration_ms: 300'
    echo precious >trace
    fails perfetto --txt -c config.txt -o trace --no-clobber
    [ "$(cat trace)" = precious ]
}

# Of the session with the highest score, and without its filter.
case_save_for_bugreport() {
    config 'unique_session_name: "low"' 'bugreport_score: 1'
    recording STARTED their_record
    low=$last
    config 'unique_session_name: "high"' 'bugreport_score: 20' "trace_filter { bytecode: \"$no_sys_stats\" }"
    start high perfetto --txt -c config.txt -o filtered
    until_true sessions STARTED high 1
    record_some
    # It says where it has put the trace; the place is not for us to choose.
    perfetto --save-for-bugreport 2>save.log
    mv "$(sed -n 's/.* bytes into //p' save.log)" saved
    whole saved sys_stats
    their_end
    kill -TERM "$low" && wait "$low"
    whole filtered trace_config
    fails holds sys_stats
}

# A filter that lets the service's own packets through, and process trees.
no_sys_stats='\013\001\000\021\061\101\121\211\002\231\002\241\002\251\004\000\332\230\260\227\006'
case_filter() {
    config 'unique_session_name: "filtered"' "trace_filter { bytecode: \"$no_sys_stats\" }"
    recording STARTED their_record
    record_some
    perfetto --clone-by-name filtered -o clone
    whole clone trace_config
    fails holds sys_stats
    perfetto --clone-by-name filtered --clone-for-bugreport -o unfiltered
    whole unfiltered sys_stats
    their_end
    whole trace trace_config
    fails holds sys_stats
    watershed inspect --json trace | jq -e '.losses == []'
}

case_filter_that_is_wrong() {
    config 'trace_filter { bytecode: "\013\001" }' 'duration_ms: 300'
    timeout 20 perfetto --txt -c config.txt -o trace 2>refused.log || true
    [ ! -s trace ]
}

case_clone() {
    config 'unique_session_name: "cloned"' 'bugreport_score: 10'
    recording STARTED their_record
    record_some
    perfetto --clone "$(watershed query --json | jq '.sessions[0].id')" -o by-number
    whole by-number sys_stats
    perfetto --clone-by-name cloned -o by-name
    whole by-name sys_stats
    perfetto --clone-by-name cloned --clone-for-bugreport -o for-bugreport
    whole for-bugreport sys_stats
    sessions STARTED cloned 1
    their_end
    whole trace sys_stats
}

# Its exit code is 0; it says so, and writes nothing.
case_clone_of_nothing() {
    perfetto --clone-by-name nobody -o clone 2>clone.log
    grep -q 'session not found' clone.log
    [ ! -s clone ]
}

case_trigger_stops() {
    config 'trigger_config { trigger_mode: STOP_TRACING trigger_timeout_ms: 30000
        triggers { name: "stop_now" stop_delay_ms: 200 } }'
    recording STARTED their_record
    record_some
    their_trigger stop_now
    wait "$last"
    whole trace sys_stats trigger
}

case_trigger_starts() {
    config 'trigger_config { trigger_mode: START_TRACING trigger_timeout_ms: 30000
        triggers { name: "start_now" stop_delay_ms: 500 } }'
    recording CONFIGURED their_record
    their_trigger start_now
    wait "$last"
    whole trace sys_stats trigger
}

case_trigger_from_config() {
    config 'trigger_config { trigger_mode: STOP_TRACING trigger_timeout_ms: 30000
        triggers { name: "by_config" stop_delay_ms: 200 } }'
    recording STARTED their_record
    trigger_from_config by_config
    wait "$last"
    whole trace trigger
}

case_trigger_never_comes() {
    config 'trigger_config { trigger_mode: START_TRACING trigger_timeout_ms: 500
        triggers { name: "never" stop_delay_ms: 500 } }'
    perfetto --txt -c config.txt -o trace
    [ ! -s trace ]
}

case_trigger_clones() {
    config 'trigger_config { trigger_mode: CLONE_SNAPSHOT trigger_timeout_ms: 60000
        triggers { name: "snap" stop_delay_ms: 100 } }'
    recording STARTED their_record
    record_some
    their_trigger snap
    until_true whole trace.0 sys_stats clone_snapshot_trigger
    their_trigger snap
    until_true whole trace.1 sys_stats clone_snapshot_trigger
    sessions STARTED "" 1
    their_end
}

case_long_trace() {
    config 'write_into_file: true' 'file_write_period_ms: 100' 'duration_ms: 1500'
    perfetto --txt -c config.txt -o trace
    whole trace sys_stats
}

case_long_trace_synced() {
    config 'write_into_file: true' 'file_write_period_ms: 100' 'duration_ms: 1500' \
        'fflush_post_write: FFLUSH_ENABLED' 'flush_period_ms: 200'
    perfetto --txt -c config.txt -o trace
    whole trace sys_stats
}

case_file_of_limited_size() {
    config 'write_into_file: true' 'file_write_period_ms: 100' 'max_file_size_bytes: 65536'
    sed -i 's/meminfo_period_ms: 50/meminfo_period_ms: 10 vmstat_period_ms: 10/' config.txt
    timeout 30 perfetto --txt -c config.txt -o trace
    [ "$(stat -c %s trace)" -le 65536 ]
    watershed inspect --json trace >report.json || true
    holds sys_stats
}

case_output_path() {
    config 'write_into_file: true' 'duration_ms: 500' "output_path: \"$PWD/trace\""
    perfetto --txt -c config.txt
    whole trace sys_stats
}

case_deflate() {
    config 'compression_type: COMPRESSION_TYPE_DEFLATE' 'duration_ms: 500'
    perfetto --txt -c config.txt -o trace
    whole trace sys_stats
}

case_deflate_into_file() {
    config 'compression_type: COMPRESSION_TYPE_DEFLATE' 'duration_ms: 500' \
        'write_into_file: true' 'file_write_period_ms: 100'
    perfetto --txt -c config.txt -o trace
    whole trace sys_stats
    jq -e '.packets.compressed_packets > 0' report.json
}

# Their text form does not know the field yet, their binary one passes it on: `compression` (47) of
# TraceConfig, with zstd (2).
case_zstd_into_file() {
    [ "$daemon" = our_daemon ] || return 0
    config 'write_into_file: true' 'file_write_period_ms: 100' 'duration_ms: 1500'
    perfetto --txt -c config.txt -o plain
    whole plain sys_stats
    raw_config plain >config.bin
    printf '\372\002\002\022\000' >>config.bin
    perfetto -c config.bin -o trace
    whole trace sys_stats
    jq -e '.packets.compressed_packets > 0' report.json
}

case_two_sessions_of_events() {
    start recorder perfetto -o first -t 2s sched/sched_switch
    until_true sessions STARTED "" 1
    perfetto -o second -t 500ms sched/sched_waking
    whole second ftrace_events
    wait "$last"
    whole first ftrace_events
}

case_incremental_state() {
    config 'incremental_state_config { clear_period_ms: 200 }' 'duration_ms: 1000'
    perfetto --txt -c config.txt -o trace
    whole trace sys_stats
}

case_name_is_taken() {
    config 'unique_session_name: "once"'
    recording STARTED their_record
    timeout 10 perfetto --txt -c config.txt -o second 2>refused.log || true
    grep -qi 'service error' refused.log
    [ ! -s second ]
    their_end
    whole trace sys_stats
}

# The session goes on, and ends in order.
case_killed_probes() {
    config 'duration_ms: 2000'
    recording STARTED their_record
    record_some
    kill -KILL "$(cat "$place/probes.pid")"
    wait "$last"
    watershed inspect trace
    "$probes"
}

case_killed_consumer() {
    config
    recording STARTED their_record
    kill -KILL "$last"
    until_true sessions STARTED "" 0
}

# What was written into the file before can be read; probes connect to the next daemon.
case_killed_daemon() {
    config 'write_into_file: true' 'file_write_period_ms: 100' \
        'write_flush_mode: WRITE_FLUSH_ENABLED'
    recording STARTED their_record
    sleep 1
    kill -KILL "$(cat "$place/daemon.pid")"
    until_true gone "$last"
    "$daemon"
    watershed inspect --json trace >report.json || true
    holds sys_stats
    until_true offers linux.ftrace linux.sys_stats
}

their_consumer=(query every_source many_events light_flags light_flags_with_size
    to_standard_output note interrupted background background_wait notify_fd no_clobber detach
    attach_waits detach_with_trigger clone clone_of_nothing save_for_bugreport filter
    filter_that_is_wrong trigger_stops trigger_starts trigger_from_config trigger_never_comes
    trigger_clones long_trace long_trace_synced file_of_limited_size output_path deflate
    deflate_into_file zstd_into_file two_sessions_of_events incremental_state name_is_taken
    killed_probes killed_consumer killed_daemon)

# --- our commands as the consumer -------------------------------------------------------------

case_our_query() {
    watershed query | grep -qw linux.ftrace
    watershed query --json | jq -e '.producers | length > 0'
}

case_our_record() {
    watershed record --daemon -t 1s -o trace
    whole trace sys_stats
}

case_our_events() {
    watershed record --daemon -t 1s -o trace --fail-on-loss sched/sched_switch irq
    whole trace ftrace_events
}

case_our_command() {
    watershed record --daemon -o trace sched -- sleep 0.5
    whole trace ftrace_events
}

case_our_config() {
    config 'duration_ms: 500'
    watershed record --daemon -c config.txt -o trace --fail-on-loss
    whole trace sys_stats
}

case_our_interrupted() {
    config
    recording STARTED our_record
    record_some
    our_end
    whole trace sys_stats
}

case_our_background() {
    config
    pid=$(watershed record --daemon -c config.txt -o trace --background 2>background.log)
    until_true sessions STARTED "" 1
    record_some
    kill -TERM "$pid"
    until_true whole trace sys_stats
}

case_our_background_wait() {
    config
    pid=$(watershed record --daemon -D -c config.txt -o trace)
    sessions STARTED "" 1
    record_some
    kill -TERM "$pid"
    until_true whole trace sys_stats
}

case_our_filter() {
    config 'unique_session_name: "filtered"' "trace_filter { bytecode: \"$no_sys_stats\" }"
    recording STARTED our_record
    record_some
    watershed clone --name filtered --for-bugreport -o unfiltered
    whole unfiltered sys_stats
    our_end
    whole trace trace_config
    fails holds sys_stats
}

case_our_detach() {
    config 'duration_ms: 20000'
    watershed detach key -c config.txt -o trace
    watershed attach key --check
    record_some
    watershed stop key
    whole trace sys_stats
    fails watershed attach key --check
}

case_our_detach_without_file() {
    config
    watershed detach key -c config.txt
    record_some
    watershed stop key -o trace
    whole trace sys_stats
}

case_our_clone() {
    config 'unique_session_name: "ours"' 'bugreport_score: 10'
    recording STARTED our_record
    record_some
    watershed clone --name ours -o by-name
    whole by-name sys_stats
    watershed clone --id "$(watershed query --json | jq '.sessions[0].id')" -o by-id
    whole by-id sys_stats
    watershed clone --for-bugreport -o for-bugreport
    whole for-bugreport sys_stats
    fails watershed clone --name nobody -o none
    our_end
    whole trace sys_stats
}

case_our_trigger_stops() {
    config 'trigger_config { trigger_mode: STOP_TRACING trigger_timeout_ms: 30000
        triggers { name: "stop_now" stop_delay_ms: 200 } }'
    recording STARTED our_record
    record_some
    watershed trigger stop_now
    wait "$last"
    whole trace sys_stats trigger
}

case_our_trigger_starts() {
    config 'trigger_config { trigger_mode: START_TRACING trigger_timeout_ms: 30000
        triggers { name: "start_now" stop_delay_ms: 500 } }'
    recording CONFIGURED our_record
    watershed trigger start_now
    wait "$last"
    whole trace sys_stats trigger
}

case_our_trigger_clones() {
    config 'trigger_config { trigger_mode: CLONE_SNAPSHOT trigger_timeout_ms: 60000
        triggers { name: "snap" stop_delay_ms: 100 } }'
    recording STARTED our_record
    record_some
    watershed trigger snap
    until_true whole trace.0 sys_stats clone_snapshot_trigger
    their_trigger snap
    until_true whole trace.1 sys_stats clone_snapshot_trigger
    sessions STARTED "" 1
    our_end
    fails test -e trace
}

case_our_flight_recorder() {
    config
    start recorder watershed flightrecorder -c config.txt --on-trigger oops -o flights
    until_true sessions STARTED flightrecorder 1
    record_some
    watershed trigger oops
    until_true flights 1
    their_trigger oops
    until_true flights 2
    kill -USR1 "$last"
    until_true flights 3
    their_end
    for flight in flights/*.pftrace; do whole "$flight" sys_stats; done
}
flights() { [ "$(find flights -name '*.pftrace' | wc -l)" = "$1" ]; }

case_our_long_trace() {
    config 'write_into_file: true' 'file_write_period_ms: 100' 'duration_ms: 1500' \
        'compression_type: COMPRESSION_TYPE_DEFLATE'
    watershed record --daemon -c config.txt -o trace
    whole trace sys_stats
    jq -e '.packets.compressed_packets > 0' report.json
}

our_consumer=(our_query our_record our_events our_command our_config our_interrupted
    our_background our_background_wait our_filter our_detach our_detach_without_file our_clone
    our_trigger_stops our_trigger_starts our_trigger_clones our_flight_recorder our_long_trace)
