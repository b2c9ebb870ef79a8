package devices

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Two pods of two containers never have one device each and wait for each other.
func TestAPodGetsAllItsDevicesOrNone(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	grant(t, m, request("a", "c", 1), "w0")
	two := podOf("b", asks("c1", 1), asks("c2", 1))
	notReady(t, m, two, "1 wanted, 0 free (of 2, 2 in use)")
	if g := m.Grants(); len(g) != 1 {
		t.Errorf("a pod that waits has %+v", g)
	}
	src.set("w0", "w1", "w2")
	admit(t, m, two)
	if a, b := given(t, m, two, "c1"), given(t, m, two, "c2"); a != "w1" || b != "w2" {
		t.Errorf("given %q and %q", a, b)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1")
	admit(t, m, request("a", "c", 1))
	notReady(t, m, request("c", "c", 2), "2 wanted, 1 free")
	notReady(t, m, request("d", "c", 1), "pod default/p-c, which came first, waits for it") // there is one, but c needs it
	notReady(t, m, request("b", "c", 2), "2 wanted, 1 free")                                // older than c, asked later
	ticked := watch(t, m)
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	notReady(t, m, request("d", "c", 1), "default/p-b")
	notReady(t, m, request("c", "c", 2), "default/p-b")
	ticked()
	admit(t, m, request("b", "c", 2))
	if !ticked() {
		t.Error("those behind a pod that has got its devices are not told")
	}
	if err := m.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	ticked()
	// Who gives up makes room for the next one.
	if err := m.Release(t.Context(), "c"); err != nil || !ticked() {
		t.Errorf("released: %v", err)
	}
	admit(t, m, request("d", "c", 1))
}

// Who asks for more than there is would keep the others waiting for ever.
func TestWhoAsksForMoreThanThereIsDoesNotQueue(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	notReady(t, m, request("a", "c", 3), "3 wanted, 2 free", "more than the node has, so younger pods may start first")
	grant(t, m, request("b", "c", 2), "w0", "w1")
	if err := m.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	src.set("w0", "w1", "w2")
	admit(t, m, request("c", "c", 1))
	notReady(t, m, request("a", "c", 3), "3 wanted, 2 free (of 3, 1 in use)")
	notReady(t, m, request("d", "c", 1), "default/p-a") // it is in line now
	src.set("w0", "w1")
	ticked := watch(t, m)
	notReady(t, m, request("a", "c", 3), "younger pods may start first")
	if !ticked() {
		t.Error("those behind a pod that has left the line are not told")
	}
	grant(t, m, request("d", "c", 1), "w1")
}

// The API tells the time of a pod's creation to the second.
func TestPodsOfOneSecondAreServedAsTheyAsk(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1")
	at := func(pod string, n int64) PodRequest {
		req := request(pod, "c", n)
		req.Created = created("a")
		return req
	}
	admit(t, m, at("a", 1))
	for range 2 {
		notReady(t, m, at("z", 2), "2 wanted, 1 free")
		notReady(t, m, at("y", 1), "default/p-z")
		notReady(t, m, at("x", 1), "default/p-z")
	}
	if err := m.Release(t.Context(), "z"); err != nil {
		t.Fatal(err)
	}
	notReady(t, m, at("x", 1), "default/p-y")
	admit(t, m, at("y", 1))
}

// A pod that waits for one resource does not hold up those that ask for others.
func TestOtherResourcesAreNotHeldUp(t *testing.T) {
	m, src := newTestManager(t, "w0")
	const gadget = "example.com/gadget"
	src.snap.Resources = append(src.snap.Resources, gadget)
	src.snap.Devices = append([]inventory.Device{{Resource: gadget, Name: "g0"}}, src.snap.Devices...)
	grant(t, m, request("a", "c", 1), "w0")
	notReady(t, m, request("b", "c", 1))
	other := podOf("c", ContainerRequest{Name: "c", Role: alloc.Main, Resources: map[string]int64{gadget: 1}})
	grant(t, m, other, gadget+"=g0")
}

// A refusal fails the pod, in the source's words, and leaves nothing.
func TestARefusalFreesEverything(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	src.prepare = func(c source.Container, resource string, _ []string) (answer.Answer, error) {
		if c.Name == "c2" {
			return answer.Answer{}, &answer.RefusedError{Resource: resource, Err: errors.New("firmware too old")}
		}
		return answer.Answer{Envs: map[string]string{"X": "1"}}, nil
	}
	ticked := watch(t, m)
	v, err := m.Admit(t.Context(), podOf("a", asks("c1", 1), asks("c2", 1)))
	if err != nil || v.Phase != Failed || v.Reason != "UnexpectedAdmissionError" || v.Message != widget+" is refused: firmware too old" {
		t.Errorf("%+v, %v", v, err)
	}
	if g := m.Grants(); len(g) != 0 || !ticked() {
		t.Errorf("left: %+v", g)
	}
	if recs, _ := m.clerk.ledger.load(); len(recs) != 0 {
		t.Errorf("left on disk: %+v", recs)
	}
	src.prepare = nil
	grant(t, m, request("b", "c", 2), "w0", "w1")
}

// A source that cannot be reached holds the pod, which keeps its devices; the next attempt is for the same ones.
func TestASourceThatCannotBeReachedHoldsThePod(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	src.prepare = func(source.Container, string, []string) (answer.Answer, error) {
		return answer.Answer{}, errors.New("no answer")
	}
	notReady(t, m, request("a", "c", 1), "no answer")
	src.prepare = nil
	grant(t, m, request("b", "c", 1), "w1")
	grant(t, m, request("a", "c", 1), "w0")
	if want := []string{"c [w0]", "c [w1]", "c [w0]"}; !slices.Equal(src.prepared, want) {
		t.Errorf("prepared %q, want %q", src.prepared, want)
	}
}

// What was granted but not answered when the process died is answered by the next one, for the same devices; an answer is not asked for
// twice in one boot, and again in the next.
func TestAnswersAreOfOneBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	src := &benchSource{}
	src.set("w0", "w1")
	lives := 0
	live := func(boot string, f func(m *Manager)) {
		lives++
		db := open(t, path)
		defer db.Close()
		m := newManager(Config{DB: db, Log: quiet(), Boot: boot}, new(topology.Aligner), src)
		if err := m.Reconcile(t.Context(), map[string]bool{"a": true}, nil); err != nil {
			t.Fatal(err)
		}
		f(m)
	}
	live("one", func(m *Manager) {
		defer failpoint.Arm("devices/grant/persisted", func() error { return errors.New("killed") })()
		if _, err := m.Admit(t.Context(), request("a", "c", 1)); err == nil || len(src.prepared) != 0 {
			t.Fatalf("%v, prepared %q: the intent is to be on record first", err, src.prepared)
		}
	})
	src.set("v9", "w0", "w1")
	for range 2 {
		live("one", func(m *Manager) {
			grant(t, m, request("a", "c", 1), "w0")
			grant(t, m, request("a", "c", 1), "w0")
		})
	}
	if want := []string{"c [w0]"}; !slices.Equal(src.prepared, want) {
		t.Errorf("in the first boot prepared %q, want %q", src.prepared, want)
	}
	live("two", func(m *Manager) { grant(t, m, request("a", "c", 1), "w0") })
	if want := []string{"c [w0]", "c [w0]"}; !slices.Equal(src.prepared, want) {
		t.Errorf("in both boots prepared %q, want %q", src.prepared, want)
	}
}

// adviser is a source with an opinion.
type adviser struct {
	*benchSource
	prefer func(available, must []string, n int) []string
}

func (a adviser) Prefer(_ context.Context, _ string, available, must []string, n int) []string {
	return a.prefer(available, must, n)
}

func TestAdviceOfTheSource(t *testing.T) {
	src := &benchSource{}
	src.set("w0", "w1", "w2", "w3")
	var asked []string
	last := func(available, must []string, n int) []string {
		asked = append(asked, fmt.Sprint(available, must, n))
		return append(slices.Clone(must), available[len(available)-n+len(must):]...)
	}
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), adviser{src, last})
	initial := asks("init", 1)
	initial.Role = alloc.Init
	req := podOf("a", initial, asks("c", 2))
	admit(t, m, req)
	if a, b := given(t, m, req, "init"), given(t, m, req, "c"); a != "w3" || b != "w3 w2" {
		t.Errorf("given %q and %q", a, b)
	}
	if want := []string{"[w0 w1 w2 w3] [] 1", "[w3 w0 w1 w2] [w3] 2"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	grant(t, m, request("b", "c", 2), "w0", "w1") // no choice, no question
	if len(asked) != 2 {
		t.Errorf("asked %q", asked)
	}
}

// Two sources' answers to one container that contradict each other fail the pod before it has anything.
func TestAnswersThatContradictEachOther(t *testing.T) {
	const gadget = "example.com/gadget"
	other := &benchSource{name: "other"}
	other.snap = inventory.Snapshot{Resources: []string{gadget}, Devices: []inventory.Device{{Resource: gadget, Name: "g0"}}}
	src := &benchSource{}
	src.set("w0")
	src.prepare = func(source.Container, string, []string) (answer.Answer, error) {
		return answer.Answer{Envs: map[string]string{"ONLY": "w0"}}, nil
	}
	other.prepare = func(source.Container, string, []string) (answer.Answer, error) {
		return answer.Answer{Envs: map[string]string{"ONLY": "g0"}}, nil
	}
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src, other)
	req := podOf("a", ContainerRequest{Name: "c", Role: alloc.Main, Resources: map[string]int64{widget: 1, gadget: 1}})
	v, err := m.Admit(t.Context(), req)
	if err != nil || v.Phase != Failed || !strings.Contains(v.Message, "variable ONLY is given by "+gadget+" as well, in another way") {
		t.Errorf("%+v, %v", v, err)
	}
	if g := m.Grants(); len(g) != 0 {
		t.Errorf("left: %+v", g)
	}
}

// What two sources know is one piece of hardware.
func TestHardwareOfTwoSourcesIsGivenOnce(t *testing.T) {
	const partition = "example.com/partition"
	src, other := &benchSource{}, &benchSource{name: "other"}
	src.set("card")
	src.nodes("card", "/dev/p0", "/dev/p1")
	other.snap = inventory.Snapshot{Resources: []string{partition}, Devices: []inventory.Device{{Resource: partition, Name: "p0", Nodes: []string{"/dev/p0"}}}}
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src, other)
	part := podOf("a", ContainerRequest{Name: "c", Role: alloc.Main, Resources: map[string]int64{partition: 1}})
	admit(t, m, part)
	notReady(t, m, request("b", "c", 1), "1 wanted, 0 free (of 1, 1 in use)")
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	admit(t, m, request("b", "c", 1))
	notReady(t, m, part, "0 free")
}

// starter is a source that is told before each start.
type starter struct {
	*benchSource
	err    error
	starts []string
	// required and known are what StartRequired says.
	required, known bool
}

func (s *starter) StartRequired(string) (required, known bool) { return s.required, s.known }

func (s *starter) BeforeStart(_ context.Context, c source.Container, _ string, names []string) error {
	s.starts = append(s.starts, fmt.Sprint(c.Name, names))
	return s.err
}

func TestSourcesAreToldBeforeEachStart(t *testing.T) {
	src := &starter{benchSource: &benchSource{}, required: true, known: true}
	src.set("w0")
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src)
	req := request("a", "c", 1)
	admit(t, m, req)
	if len(src.starts) != 0 {
		t.Errorf("told at the admission: %q", src.starts)
	}
	given(t, m, req, "c")
	src.err = errors.New("reset failed")
	_, err := m.Grant(t.Context(), req.container("c"))
	var failed *StartError
	if !errors.As(err, &failed) || err.Error() != widget+" does not let the container start: reset failed" || len(src.starts) != 2 {
		t.Errorf("%v after %q", err, src.starts)
	}
	src.required = false
	given(t, m, req, "c")
	if len(src.starts) != 2 {
		t.Errorf("told though it did not want to be: %q", src.starts)
	}
	// It is away, and nobody knows what it wants: what it wanted at the admission counts.
	src.known, src.err = false, fmt.Errorf("no plugin: %w", errdefs.ErrUnavailable)
	withheld(t, m, req, "c", "no plugin")
	if len(src.starts) != 3 {
		t.Errorf("told %q", src.starts)
	}
}

func TestAnAbsentSourceThatWantedNothingHoldsNoStart(t *testing.T) {
	src := &starter{benchSource: &benchSource{}, known: true, err: errors.New("nobody wants to know")}
	src.set("w0")
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src)
	req := request("a", "c", 1)
	admit(t, m, req)
	src.known = false
	given(t, m, req, "c")
}
