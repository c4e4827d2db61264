package containers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/e2e/containers"
)

func TestMain(m *testing.M) { containers.Main(m) }

// The broker is of the version asked for, and keeps its address and its data
// when it stops or crashes.
func TestKafka(t *testing.T) {
	for version, transactions := range map[string]int16{"4.3.1": 2, "3.9.1": 0} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := containers.Kafka(t, containers.WithVersion(version), containers.WithConfig(map[string]string{"message.max.bytes": "54321"}))
			if out := b.Exec(t, "kafka-topics", "--version"); !strings.HasPrefix(out, version) {
				t.Errorf("kafka-topics --version prints %q", out)
			}

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumeTopics("orders"), kgo.MetadataMinAge(50*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			adm := kadm.NewClient(cl)

			versions, err := adm.ApiVersions(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range versions {
				// Kafka 4 has dropped version 0 of CreateTopics.
				low, _ := v.KeyMinVersion(kmsg.CreateTopics.Int16())
				if want := strings.HasPrefix(version, "3."); (low == 0) != want {
					t.Errorf("%s answers as %s, its lowest version of CreateTopics is %d", version, v.VersionGuess(), low)
				}
				t.Logf("ApiVersions looks like %s", v.VersionGuess())
			}
			if got := transactionVersion(ctx, t, cl); got != transactions {
				t.Errorf("transaction.version is %d, want %d", got, transactions)
			}
			if got := brokerConfig(ctx, t, adm, "message.max.bytes"); got != "54321" {
				t.Errorf("message.max.bytes is %q", got)
			}

			if _, err := adm.CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
				t.Fatal(err)
			}
			produce := func(value string) {
				t.Helper()
				if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			addr := b.Addr()
			produce("before the stop")
			b.Stop(t)
			b.Start(t)
			produce("before the crash")
			b.Kill(t)
			b.Start(t)
			produce("after the crash")
			if b.Addr() != addr {
				t.Errorf("the broker has moved from %s to %s", addr, b.Addr())
			}

			b.Pause(t)
			frozen, stop := context.WithTimeout(ctx, 200*time.Millisecond)
			if err := cl.Ping(frozen); err == nil {
				t.Error("a paused broker answers")
			}
			stop()
			b.Unpause(t)

			var values []string
			for len(values) < 3 {
				fetches := cl.PollFetches(ctx)
				if err := ctx.Err(); err != nil {
					t.Fatalf("%v, read %q", err, values)
				}
				fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
			}
			if got := strings.Join(values, ", "); got != "before the stop, before the crash, after the crash" {
				t.Errorf("read %q", got)
			}
			for _, tool := range []string{"kafka-topics --list", "kafka-consumer-groups --list", "kafka-configs --describe --topic orders", "kafka-broker-api-versions", "kafka-features describe"} {
				args := strings.Fields(tool)
				b.Exec(t, append([]string{args[0], "--bootstrap-server", containers.InnerAddr}, args[1:]...)...)
			}
		})
	}
}

func transactionVersion(ctx context.Context, t *testing.T, cl *kgo.Client) int16 {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "flusso-e2e", "1"
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel
		}
	}
	return 0
}

func brokerConfig(ctx context.Context, t *testing.T, adm *kadm.Client, name string) string {
	t.Helper()
	configs, err := adm.DescribeBrokerConfigs(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == name {
			return c.MaybeValue()
		}
	}
	return ""
}

func TestShared(t *testing.T) {
	if a, b := containers.Shared(t), containers.Shared(t); a != b {
		t.Error("two shared brokers")
	}
}

// The database keeps its address and its data when it stops or crashes.
func TestPostgres(t *testing.T) {
	t.Parallel()
	d := containers.Postgres(t, "max_connections=50")
	url := d.NewDatabase(t, "Shop")

	query := func(sql string) string {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		rows, err := conn.Query(t.Context(), sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		values, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(values, ", ")
	}
	for setting, want := range map[string]string{"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20", "max_connections": "50"} {
		if got := query("SHOW " + setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	query("SELECT pg_create_logical_replication_slot('flusso', 'pgoutput')::text")
	query("CREATE TABLE orders AS SELECT 'o1'::text AS id")
	d.Kill(t)
	d.Start(t)
	if got := query("SELECT id FROM orders"); got != "o1" {
		t.Errorf("after the crash the order is %q", got)
	}
	d.Stop(t)
	d.Start(t)
	if got := query("SELECT slot_name::text FROM pg_replication_slots"); got != "flusso" {
		t.Errorf("after the restart the slot is %q", got)
	}
}
