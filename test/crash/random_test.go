package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
)

const (
	// killsVar says how many times TestRandomDeaths kills monopod; the long run is `make test-kills KILLS=1000`.
	killsVar = "MONOPOD_TEST_KILLS"
	// lifeLogsVar is a folder in which TestRandomDeaths keeps what each life of monopod has logged.
	lifeLogsVar = "MONOPOD_TEST_LIFE_LOGS"
	fewKills    = 5
	// longestLife is the longest time from a start, or from when it is ready, to a kill.
	longestLife = 2 * time.Second
	// restAfter is after how many kills all has to come to rest, and is looked at.
	restAfter = 25
)

// storm is a node whose monopod is killed again and again while everything changes.
type storm struct {
	*testing.T
	n      *harness.Node
	client kubernetes.Interface
	seed   uint64
	out    string // the folder of all inhabitants
	// ctx ends with the storm; running are those who change, ask and watch.
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	// calm is held by who wants nothing to change, and shared by who changes something.
	calm  sync.RWMutex
	book  *book
	wants *wanted
	peers map[string]*peer
	// names are the addresses that names have all the time.
	names   map[string]string
	traffic *tally
	faults  atomic.Int32
	// programs are two builds of the executor, which is updated from the one to the other again and again.
	programs []string
	updates  *rand.Rand
	handed   int // how often that was told to have gone well
	lives    int
	up       bool // monopod runs
}

// TestRandomDeaths kills monopod with SIGKILL at random moments, also while it starts, under rollouts, jobs, changes of services and of policies, and
// questions to the DNS. Most of its lives find another build of the executor, which is updated under all that; at times the executor's worker is killed at one of the steps,
// or a step is refused. Who watches is not killed: the events of all pods, what the pods themselves write down, connections, datagrams and answers.
//
// Nothing is there twice: pods of a deployment beyond its surge, of a daemon set or of both templates of one that is recreated; two processes of an identity; a
// container that started more often than the API says; a part of a job. Nothing is lost: an acknowledged write, a connection to an endpoint that stays, a
// new one to it, a pod or a job. No policy opens, and none closes for whom it allows. A name is never answered wrongly. Whenever there are no kills for a
// moment all comes to what was wanted last; and in the end nothing is left.
//
// The seed repeats what is done, and not when: that is as the machine has it.
func TestRandomDeaths(t *testing.T) {
	kills := fewKills
	if v := os.Getenv(killsVar); v != "" {
		var err error
		if kills, err = strconv.Atoi(v); err != nil {
			t.Fatalf("$%s: %v", killsVar, err)
		}
	}
	s := newStorm(t)
	begun := time.Now()
	moments := s.rand("moments")
	for i := 1; i <= kills && s.faults.Load() == 0; i++ {
		s.live(moments) // and death: it is killed at its end, or before the next one begins
		if i%restAfter == 0 && i < kills {
			s.rest(fmt.Sprintf("after %d kills", i))
			t.Logf("%d kills, %.0f s: %s", i, time.Since(begun).Seconds(), s.summary())
		}
	}
	s.rest("in the end")
	t.Logf("%d kills in %.0f s: %s", s.lives, time.Since(begun).Seconds(), s.summary())
	if few := s.lives / 10; s.handed < few {
		t.Errorf("the executor was handed over %d times in %d lives, want %d at least: something keeps it what it is", s.handed, s.lives, few)
	}
	s.finish()
}

// newStorm starts a node with all that is to live on it, and then everybody who changes and watches it.
func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{T: t, seed: chosenSeed(), book: newBook(), wants: newWanted(), traffic: newTally(), out: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("MONOPOD_TEST_SEED=%d, %d kills", s.seed, s.lives)
		}
	})
	program := harness.Bin(t, "monopod-executor")
	s.programs, s.updates = []string{program, anotherFile(t, program)}, s.rand("updates")
	image := harness.Archive(t, inhabitant, inhabitantImage(inhabitantProgram(t)))
	s.n = harness.NewNode(t, harness.Options{})
	s.awaitReady(s.begin())
	s.n.LoadImage(image)
	s.client = lasting(t, s.n)
	s.settleDown()
	s.ctx, s.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		s.keepLog()
		s.stop()
		s.running.Wait()
	})
	s.watch()
	s.talk()
	s.change()
	s.rest("at first")
	return s
}

// chosenSeed is the seed that a run is to have: that of the flag, or else of the environment, or else any.
func chosenSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	if chosen, err := strconv.ParseUint(os.Getenv("MONOPOD_TEST_SEED"), 10, 64); err == nil && chosen != 0 {
		return chosen
	}
	return rand.Uint64()
}

// rand is a source of its own for each use: what one draws changes nothing for the others.
func (s *storm) rand(use string) *rand.Rand {
	h := fnv.New64()
	_, _ = h.Write([]byte(use))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// fault is what must not be. The first ones are told, and no kill comes after them.
func (s *storm) fault(format string, args ...any) {
	if s.faults.Add(1) <= 20 {
		s.Errorf(time.Now().Format("15:04:05.000 ")+fmt.Sprintf("life %d: ", s.lives)+format, args...)
	}
}

// live lets monopod live for a random time from its start, or from when it is ready, on.
func (s *storm) live(rnd *rand.Rand) {
	s.Helper()
	if s.up {
		s.kill()
	}
	ready, ended := s.begin()
	if rnd.IntN(3) > 0 {
		s.awaitReady(ready, ended)
	}
	select {
	case <-time.After(time.Duration(rnd.Int64N(int64(longestLife)))):
	case <-ended:
		s.ended()
	}
	s.kill()
}

func (s *storm) begin() (ready, ended <-chan struct{}) {
	s.Helper()
	program, step := s.update()
	s.n.Setenv(failpoint.EnvVar, step)
	ready, ended = s.n.Begin("--executor", program)
	s.n.Setenv(failpoint.EnvVar, "") // for all other commands
	s.lives++
	s.up = true
	return ready, ended
}

// steps are steps of a handover at which one of the executor's processes ends, or says no: once, for an executor keeps its environment, and with it the point, until
// it is handed over. The keeper's death is not among them: it makes the containers orphans, whose exits not every kernel tells. internal/executor has that.
var steps = []string{"worker/prepared=kill-once:", "worker/frozen=kill-once:", "worker/frozen=error-once", "keeper/prepared=error-once", "keeper/committed=error-once",
	"keeper/inherited=error-once", "worker/begun=kill-once:", "keeper/retiring=error-once", "keeper/retired=error-once", "worker/alone=kill-once:"}

// update chooses the executor of the next life: mostly another build than that of the last one. At times something happens at a step of this handover, or of the next one.
func (s *storm) update() (program, step string) {
	if s.updates.IntN(2) == 0 {
		if step = "executor/" + steps[s.updates.IntN(len(steps))]; strings.HasSuffix(step, ":") {
			step += filepath.Join(s.out, fmt.Sprintf("step-%d", s.lives))
		}
	}
	if s.updates.IntN(4) > 0 {
		slices.Reverse(s.programs)
	}
	return s.programs[0], step
}

func (s *storm) awaitReady(ready, ended <-chan struct{}) {
	s.Helper()
	select {
	case <-ready:
	case <-ended:
		s.ended()
	case <-time.After(patience * harness.SlowFactor()):
		s.Fatalf("life %d: monopod was not ready in time\n%s", s.lives, s.logged())
	}
}

// ended says that monopod ended though nobody has killed it.
func (s *storm) ended() {
	s.Helper()
	s.Fatalf("life %d: monopod has ended by itself\n%s", s.lives, s.logged())
}

func (s *storm) logged() string { return s.n.Log()[max(0, len(s.n.Log())-6000):] }

func (s *storm) kill() {
	s.Helper()
	s.n.Kill()
	s.up = false
	s.handed += strings.Count(s.n.Log(), "the executor goes on as the installed program")
	s.keepLog()
}

func (s *storm) keepLog() {
	s.Helper()
	if dir := os.Getenv(lifeLogsVar); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("life-%04d.log", s.lives)), []byte(s.n.Log()), 0o644); err != nil {
			s.Error(err)
		}
	}
}

// rest lets monopod live, has nobody change anything, and holds everything against what was wanted last.
func (s *storm) rest(when string) {
	s.Helper()
	if !s.up {
		s.awaitReady(s.begin())
	}
	s.calm.Lock()
	defer s.calm.Unlock()
	s.converged(when)
}

// lasting is one client for all lives of a node: each is dialled where its kubeconfig says, as its port is new.
func lasting(t *testing.T, n *harness.Node) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	cfg.Timeout = 60 * time.Second * harness.SlowFactor()
	cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		now, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig())
		if err != nil {
			return nil, err
		}
		u, err := url.Parse(now.Host)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, u.Host)
	}
	return kubernetes.NewForConfigOrDie(cfg)
}

// unheard says of a request's error that it is no answer: the server went away, or was not all there yet, or does not know what came of it, as when its disk is
// slow.
func unheard(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	unknown := status.Status().Code == http.StatusInternalServerError && status.Status().Reason == metav1.StatusReasonUnknown
	return unknown || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}

// again has somebody do something until the storm ends, with pauses up to the given one. What cannot be heard by the server is tried again.
func (s *storm) again(who string, pause time.Duration, step func(ctx context.Context, rnd *rand.Rand) error) {
	rnd := s.rand(who)
	s.running.Go(func() {
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(pause/2 + time.Duration(rnd.Int64N(int64(pause/2)+1))):
			}
			s.calm.RLock()
			err := step(s.ctx, rnd)
			s.calm.RUnlock()
			if err != nil && s.ctx.Err() == nil && !unheard(err) && !apierrors.IsConflict(err) {
				s.fault("%s: %v", who, err)
			}
		}
	})
}

// inhabitant is the image of all pods.
const inhabitant = "localhost/test/inhabitant:1"

// inhabitantProgram builds the program, or takes it from $MONOPOD_BIN.
func inhabitantProgram(t *testing.T) string {
	t.Helper()
	if path := filepath.Join(os.Getenv("MONOPOD_BIN"), "inhabitant"); filepath.IsAbs(path) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("there is nothing to build the inhabitants with: %v; and none in $MONOPOD_BIN", err)
	}
	path := filepath.Join(t.TempDir(), "inhabitant")
	cmd := exec.Command("go", "build", "-mod=readonly", "-o", path, "monopod.dev/monopod/test/crash/inhabitant")
	cmd.Dir = harness.Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the inhabitants: %v\n%s", err, out)
	}
	return path
}

func inhabitantImage(path string) harness.ImageMaker {
	return func(name string) (ociarchive.Image, error) {
		program, err := os.ReadFile(path)
		if err != nil {
			return ociarchive.Image{}, err
		}
		return ociarchive.Image{
			Name:   name,
			Config: ocispec.ImageConfig{Entrypoint: []string{"/inhabitant"}},
			Layers: []ociarchive.Layer{{{Path: "inhabitant", Data: program, Mode: 0o755}}},
		}, nil
	}
}

// fsck holds the records of a node that is stopped against what there is.
func (s *storm) fsck() {
	s.Helper()
	cmd := exec.Command(harness.Bin(s, "monopod"), "fsck", "--data-dir", s.n.Dir+"/data", "--run-dir", s.n.Dir+"/run")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "0 containers, 0 sandboxes looked at: nothing is wrong") {
		s.Errorf("fsck: %v\n%s", err, out.String())
	}
}
