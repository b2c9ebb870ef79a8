package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// database is a program that keeps rows of one number each, acknowledged when they are durable.
type database struct {
	name  string
	serve string // makes what it needs below /data, once, and runs it
	ready string
	// insert and rows are commands in its container; the former takes a number.
	create, insert, rows string
}

var databases = []database{
	{
		name: "postgres",
		serve: "[ -s /data/db/PG_VERSION ] || initdb -D /data/db -U postgres --auth=trust --locale=C -E UTF8; " +
			"exec postgres -D /data/db -k /tmp -c listen_addresses=",
		ready:  "psql -h /tmp -U postgres -c 'select 1'",
		create: "psql -h /tmp -U postgres -c 'create table t (n int primary key)'",
		insert: "psql -h /tmp -U postgres -c 'insert into t values (%d)'",
		rows:   "psql -h /tmp -U postgres -Atc 'select n from t order by n'",
	},
	{
		name: "mariadb",
		serve: "[ -d /data/db/mysql ] || mariadb-install-db --no-defaults --datadir=/data/db --auth-root-authentication-method=normal --skip-test-db; " +
			"exec mariadbd --no-defaults --datadir=/data/db --socket=/tmp/db.sock --skip-networking",
		ready:  "mariadb --no-defaults -S /tmp/db.sock -uroot -e 'select 1'",
		create: "mariadb --no-defaults -S /tmp/db.sock -uroot -e 'create database d; create table d.t (n int primary key) engine=innodb'",
		insert: "mariadb --no-defaults -S /tmp/db.sock -uroot -e 'insert into d.t values (%d)'",
		rows:   "mariadb --no-defaults -S /tmp/db.sock -uroot -Ne 'select n from d.t order by n'",
	},
	{
		name:   "redis",
		serve:  "mkdir -p /data/db; exec redis-server --dir /data/db --appendonly yes --appendfsync always --save '' --unixsocket /tmp/db.sock --port 0",
		ready:  "redis-cli -s /tmp/db.sock ping",
		create: "redis-cli -s /tmp/db.sock del t",
		insert: "redis-cli -s /tmp/db.sock rpush t %d",
		rows:   "redis-cli -s /tmp/db.sock lrange t 0 -1",
	},
}

// manifest is of the shape that charts have: a set with a template of a claim, without a class, whose programs are not root and may write nowhere else.
func (d database) manifest() string {
	text := func(s string) string {
		quoted, _ := json.Marshal(s)
		return string(quoted)
	}
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %[1]q}, "spec": {"clusterIP": "None", "selector": {"app": %[1]q}}},
		{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": %[1]q}, "spec": {
			"serviceName": %[1]q, "replicas": 1, "selector": {"matchLabels": {"app": %[1]q}},
			"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
			"template": {"metadata": {"labels": {"app": %[1]q}}, "spec": {
				"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true, "fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch",
					"seccompProfile": {"type": "RuntimeDefault"}},
				"containers": [{"name": "db", "image": %[2]q, "command": ["sh", "-ec", %[3]s],
					"env": [{"name": "PATH", "value": "/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/bin"}, {"name": "HOME", "value": "/tmp"}, {"name": "RUN", "value": "1"}],
					"readinessProbe": {"exec": {"command": ["sh", "-c", %[4]s]}, "periodSeconds": 1, "timeoutSeconds": 30},
					"securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
					"volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}]}],
				"volumes": [{"name": "tmp", "emptyDir": {}}]}}}}]}`,
		d.name, databasesName, text(d.serve), text(d.ready))
}

const databasesName = registryHost + "/test/databases:1"

// TestDatabases: what databases have acknowledged is there after all that happens to pods and nodes, and goes with the claim and with nothing else.
func TestDatabases(t *testing.T) {
	n := harness.StartNode(t, harness.Options{HostsTOML: harness.PushImages(t, registryHost, map[string]harness.ImageMaker{"test/databases": harness.Databases(t)})})
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, args := range [][]string{{"get", "pods,pvc,pv", "-o", "wide"}, {"logs", "postgres-0", "--tail=20"}, {"logs", "mariadb-0", "--tail=20"}, {"logs", "redis-0", "--tail=20"}} {
			out, err := n.TryKubectl("", args...)
			t.Log(out, err)
		}
	})
	for _, d := range databases {
		n.Apply(d.manifest())
	}
	written := 0
	insert := func(d database) {
		t.Helper()
		n.Kubectl("exec", d.name+"-0", "--", "sh", "-c", fmt.Sprintf(d.insert, written))
	}
	// check waits until all are ready, and looks whether each has all that was written.
	check := func(after string) {
		t.Helper()
		for _, d := range databases {
			n.Kubectl("rollout", "status", "statefulset/"+d.name, "--timeout=110s")
			var want strings.Builder
			for i := 1; i <= written; i++ {
				fmt.Fprintln(&want, i)
			}
			if got := n.Kubectl("exec", d.name+"-0", "--", "sh", "-c", d.rows); got != want.String() {
				t.Fatalf("%s after %s has the rows\n%swant\n%s", d.name, after, got, want.String())
			}
		}
	}
	write := func() {
		t.Helper()
		for range 3 {
			written++
			for _, d := range databases {
				insert(d)
			}
		}
	}
	for _, d := range databases {
		n.Kubectl("rollout", "status", "statefulset/"+d.name, "--timeout=110s")
		n.Kubectl("exec", d.name+"-0", "--", "sh", "-c", d.create)
	}
	write()
	for _, d := range databases {
		n.Kubectl("delete", "pod", d.name+"-0", "--timeout=120s")
	}
	check("its pod was deleted")
	write()
	for _, d := range databases {
		n.Kubectl("set", "env", "statefulset/"+d.name, "RUN=2")
	}
	check("an upgrade")
	write()
	n.Kill()
	n.Start()
	check("monopod was killed")
	write()
	n.Stop()
	n.Start()
	check("a restart of the node")
	for _, d := range databases {
		n.Kubectl("delete", "pod", d.name+"-0", "--force", "--grace-period=0")
	}
	check("its pod was deleted by force")
	testClaimsEnd(t, n)
}

// testClaimsEnd: a claim outlives its set, and what it holds goes when it is deleted.
func testClaimsEnd(t *testing.T, n *harness.Node) {
	var paths []string
	for _, d := range databases {
		claim := "data-" + d.name + "-0"
		volume := n.Kubectl("get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
		paths = append(paths, n.Kubectl("get", "pv", volume, "-o", "jsonpath={.spec.local.path}"))
		n.Kubectl("delete", "statefulset", d.name, "--cascade=foreground", "--timeout=120s")
		if phase := n.Kubectl("get", "pvc", claim, "-o", "jsonpath={.status.phase}"); phase != "Bound" {
			t.Errorf("without its set the claim %s is %s", claim, phase)
		}
	}
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join(path, "db")); err != nil {
			t.Errorf("without its set: %v", err)
		}
	}
	n.Kubectl("delete", "pvc", "--all", "--timeout=120s")
	harness.Eventually(t, "the volumes go with their claims", func() (bool, string) {
		left := n.Kubectl("get", "pv", "-o", "name")
		for _, path := range paths {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				left += fmt.Sprintln(path, err)
			}
		}
		return left == "", left
	})
}
