package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/test/harness"
)

const (
	// databaseKillsVar says how many times TestDatabaseKills kills monopod; the long run is `make test-database-kills KILLS=200`.
	databaseKillsVar = "MONOPOD_TEST_DATABASE_KILLS"
	// rowWriters write at a time, each a row after the other, with a pause.
	rowWriters = 2
	rowPause   = 2 * time.Millisecond

	databaseImage = "localhost/test/databases:1"
	databasePod   = "db-0"
	databaseClaim = "data-db-0"
)

// databaseSet is a database whose files are in a claim of its own, of the default class. Its programs are not root and may write nowhere else. At SIGTERM it waits
// for its clients, who do not go: it ends by SIGKILL.
const databaseSet = `{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
	"serviceName": "db", "replicas": 1, "selector": {"matchLabels": {"app": "db"}},
	"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}}],
	"template": {"metadata": {"labels": {"app": "db"}}, "spec": {
		"terminationGracePeriodSeconds": 2,
		"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true, "fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"},
		"containers": [{"name": "db", "image": %q, "imagePullPolicy": "Never", "command": ["sh", "-ec", %s],
			"env": [{"name": "PATH", "value": "/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/bin"}, {"name": "HOME", "value": "/tmp"}],
			"readinessProbe": {"exec": {"command": ["sh", "-c", "psql -h /tmp -U postgres -c 'select 1'"]}, "periodSeconds": 1, "timeoutSeconds": 30},
			"securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
			"volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}]}],
		"volumes": [{"name": "tmp", "emptyDir": {}}]}}}}`

const databaseServe = `[ -s /data/db/PG_VERSION ] || initdb -D /data/db -U postgres --auth=trust --locale=C -E UTF8
printf 'local all all trust\nhost all all all trust\n' > /tmp/hba
exec postgres -D /data/db -k /tmp -c listen_addresses=0.0.0.0 -c hba_file=/tmp/hba`

// databaseKills is a node with a database, whose monopod is killed again and again while rows are written.
type databaseKills struct {
	*testing.T
	n       *harness.Node
	client  kubernetes.Interface
	rnd     *rand.Rand
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	writers [rowWriters]*rowWriter
	// volume and claim are what the database had at first.
	volume string
	claim  corev1.PersistentVolumeClaim
	// What was done.
	kills, early, workers, deleted, forced int
}

// rowWriter writes rows with numbers that only go up.
type rowWriter struct {
	name int
	mu   sync.Mutex
	// acked are the numbers of which the database has said that they are committed; tried is the highest that it was asked for.
	acked []int
	tried int
	// again is how often the connection was lost.
	again int
}

// TestDatabaseKills kills monopod with SIGKILL at random moments, also while it starts, while clients write rows into a PostgreSQL whose files are in a claim. At times
// the executor's worker is killed as well, and the database's pod is deleted, by force or not. Each row that the database has acknowledged is there in the end, and no
// other than those it was asked for; the claim has the volume that it got first, and there is no other.
//
// The seed repeats what is done, and not when: that is as the machine has it.
func TestDatabaseKills(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv(databaseKillsVar))
	if err != nil {
		t.Skipf("it is not a part of CI: make test-database-kills, or set %s", databaseKillsVar)
	}
	seed := chosenSeed()
	t.Logf("MONOPOD_TEST_SEED=%d", seed)
	d := &databaseKills{T: t, n: harness.StartNode(t, harness.Options{}), rnd: rand.New(rand.NewPCG(seed, 0))}
	d.begin()
	begun := time.Now()
	for d.kills < kills && !t.Failed() {
		d.live()
		if d.kills%restAfter == 0 {
			d.check(fmt.Sprintf("after %d kills, %.0f s", d.kills, time.Since(begun).Seconds()))
		}
	}
	d.check("after the last kill")
	d.stop()
	d.running.Wait()
	d.n.Kubectl("delete", "pod", databasePod, "--timeout=120s")
	d.check("after the pod was deleted")
	d.n.Stop()
	d.n.Start()
	d.check("after a restart of the node")
	d.finish()
}

// begin makes the database, and has rows written from then on.
func (d *databaseKills) begin() {
	d.Helper()
	d.n.LoadImage(harness.Archive(d, databaseImage, harness.Databases(d)))
	d.client = lasting(d.T, d.n)
	serve, err := json.Marshal(databaseServe)
	if err != nil {
		d.Fatal(err)
	}
	d.n.Apply(fmt.Sprintf(databaseSet, databaseImage, serve))
	d.n.Kubectl("rollout", "status", "statefulset/db", "--timeout=110s")
	claim, err := d.client.CoreV1().PersistentVolumeClaims("default").Get(d.Context(), databaseClaim, metav1.GetOptions{})
	if err != nil {
		d.Fatal(err)
	}
	d.claim, d.volume = *claim, claim.Spec.VolumeName
	db, err := d.dial(d.Context())
	if err == nil {
		_, err = db.query("create table t (w int, n int, s text, primary key (w, n))")
	}
	if err != nil {
		d.Fatal(err)
	}
	db.close()
	d.ctx, d.stop = context.WithCancel(d.Context())
	d.Cleanup(func() { d.stop(); d.running.Wait() })
	for i := range d.writers {
		d.writers[i] = &rowWriter{name: i}
		d.running.Go(func() { d.write(d.writers[i]) })
	}
}

// dial connects to the database where the API says that its pod is, as soon as there is one.
func (d *databaseKills) dial(ctx context.Context) (*postgres, error) {
	var err error
	for end := time.Now().Add(patience * harness.SlowFactor()); ctx.Err() == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var pod *corev1.Pod
		if pod, err = d.client.CoreV1().Pods("default").Get(ctx, databasePod, metav1.GetOptions{}); err != nil {
			continue
		}
		if pod.Status.PodIP == "" {
			err = errors.New("the pod has no address")
			continue
		}
		var db *postgres
		if db, err = dialPostgres(pod.Status.PodIP); err == nil {
			return db, nil
		}
	}
	return nil, errors.Join(err, ctx.Err())
}

// write writes rows until the kills end.
func (d *databaseKills) write(w *rowWriter) {
	var db *postgres
	defer func() {
		if db != nil {
			db.close()
		}
	}()
	for d.ctx.Err() == nil {
		if db == nil {
			var err error
			if db, err = d.dial(d.ctx); err != nil {
				if d.ctx.Err() == nil {
					d.Errorf("writer %d: the database cannot be reached: %v", w.name, err)
				}
				return
			}
		}
		w.mu.Lock()
		w.tried++
		n := w.tried
		w.mu.Unlock()
		_, err := db.query(fmt.Sprintf("insert into t values (%d, %d, repeat('%d ', 20))", w.name, n, n))
		w.mu.Lock()
		if err == nil {
			w.acked = append(w.acked, n)
		} else { // nobody knows what has become of it
			w.again++
			db.close()
			db = nil
		}
		w.mu.Unlock()
		select {
		case <-d.ctx.Done():
		case <-time.After(rowPause):
		}
	}
}

// live lets monopod live for a random time from its start, or from when it is ready, on, and kills it. Something else may happen to it before.
func (d *databaseKills) live() {
	d.Helper()
	d.n.Kill() // the one that was there for the check
	ready, ended := d.n.Begin()
	if d.rnd.IntN(3) > 0 {
		d.awaitReady(ready, ended)
		d.harm()
	} else {
		d.early++
	}
	select {
	case <-time.After(time.Duration(d.rnd.Int64N(int64(longestLife)))):
	case <-ended:
		d.Fatalf("monopod has ended by itself\n%s", d.n.Log())
	}
	d.n.Kill()
	d.kills++
}

func (d *databaseKills) awaitReady(ready, ended <-chan struct{}) {
	d.Helper()
	select {
	case <-ready:
	case <-ended:
		d.Fatalf("monopod has ended by itself\n%s", d.n.Log())
	case <-time.After(patience * harness.SlowFactor()):
		d.Fatalf("monopod was not ready in time\n%s", d.n.Log())
	}
}

// harm does something to the database's pod, or to what it runs on.
func (d *databaseKills) harm() {
	d.Helper()
	switch d.rnd.IntN(8) {
	case 0:
		d.delete(&d.deleted, nil)
	case 1:
		d.delete(&d.forced, new(int64))
	case 2:
		of := &deaths{T: d.T, n: d.n}
		all := of.processes(d.n.Dir + "/run/executor")
		for pid, p := range all {
			if parent, ok := all[p.parent]; ok && filepath.Base(p.args[0]) == "monopod-executor" && filepath.Base(parent.args[0]) == "monopod-executor" {
				_ = syscall.Kill(pid, syscall.SIGKILL) // or it has just ended
				d.workers++
			}
		}
	}
}

// delete deletes the database's pod.
func (d *databaseKills) delete(count *int, grace *int64) {
	d.Helper()
	err := d.client.CoreV1().Pods("default").Delete(d.Context(), databasePod, metav1.DeleteOptions{GracePeriodSeconds: grace})
	switch {
	case err == nil:
		*count++
	case !unheard(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		d.Errorf("delete the pod: %v", err)
	}
}

// check has monopod live, waits until the database is ready, and looks whether all is there that was acknowledged.
func (d *databaseKills) check(when string) {
	d.Helper()
	select {
	case <-d.n.Died():
		d.n.Start()
	default:
	}
	harness.Eventually(d, when+": the database is ready", func() (bool, string) {
		out, err := d.n.TryKubectl("", "rollout", "status", "statefulset/db", "--timeout=20s")
		return err == nil, fmt.Sprint(out, err)
	})
	db, err := d.dial(d.Context())
	if err != nil {
		d.Fatalf("%s: %v", when, err)
	}
	defer db.close()
	var acked, again int
	for _, w := range d.writers {
		w.mu.Lock()
		want := w.acked[:len(w.acked):len(w.acked)]
		again += w.again
		w.mu.Unlock()
		acked += len(want)
		d.holds(db, when, w, want)
	}
	d.sameVolume(when)
	d.Logf("%s: %d rows acknowledged, all there; connections lost %d times; killed %d times, %d of them while it started, the worker %d times; the pod deleted %d times, %d times by force",
		when, acked, again, d.kills, d.early, d.workers, d.deleted, d.forced)
}

// holds says whether the database has the rows of a writer, each as it was written, and none that it was not asked for.
func (d *databaseKills) holds(db *postgres, when string, w *rowWriter, want []int) {
	d.Helper()
	rows, err := db.query(fmt.Sprintf("select n from t where w = %d", w.name))
	if err != nil {
		d.Fatalf("%s: read the rows: %v", when, err)
	}
	w.mu.Lock()
	tried := w.tried
	w.mu.Unlock()
	has := make(map[int]bool, len(rows))
	for _, text := range rows {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > tried || has[n] {
			d.Errorf("%s: writer %d has a row %q that it did not write, or has twice; it has tried %d", when, w.name, text, tried)
		}
		has[n] = true
	}
	var missing []int
	for _, n := range want {
		if !has[n] {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		d.Fatalf("%s: of %d acknowledged rows of writer %d, %d are missing: %v", when, len(want), w.name, len(missing), missing[:min(20, len(missing))])
	}
	odd, err := db.query(fmt.Sprintf("select n from t where w = %d and s <> repeat(n || ' ', 20)", w.name))
	if err != nil || len(odd) > 0 {
		d.Fatalf("%s: rows of writer %d are not as they were written: %v, %v", when, w.name, odd, err)
	}
}

// sameVolume says whether the claim is the one that it was, with the volume that it had, and no other was made.
func (d *databaseKills) sameVolume(when string) {
	d.Helper()
	claim, err := d.client.CoreV1().PersistentVolumeClaims("default").Get(d.Context(), databaseClaim, metav1.GetOptions{})
	if err != nil || claim.UID != d.claim.UID || claim.Spec.VolumeName != d.volume || claim.Status.Phase != corev1.ClaimBound {
		d.Errorf("%s: the claim is %+v, %v; want it bound to %s", when, claim, err, d.volume)
	}
	var there []string
	entries, err := os.ReadDir(filepath.Join(d.n.Dir, "data", "volumes"))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			there = append(there, e.Name())
		}
	}
	if err != nil || len(there) != 1 || there[0] != d.volume {
		d.Errorf("%s: there are the volumes %q, %v; want %s", when, there, err, d.volume)
	}
}

// finish removes all, and nothing is left of the claim.
func (d *databaseKills) finish() {
	d.Helper()
	d.n.Kubectl("delete", "statefulset", "db", "--cascade=foreground", "--timeout=120s")
	d.n.Kubectl("delete", "pvc", databaseClaim, "--timeout=120s")
	harness.Eventually(d, "the volume goes with its claim", func() (bool, string) {
		left := d.n.Kubectl("get", "pv", "-o", "name")
		_, err := os.Stat(filepath.Join(d.n.Dir, "data", "volumes", d.volume))
		return left == "" && os.IsNotExist(err), fmt.Sprint(left, err)
	})
}
