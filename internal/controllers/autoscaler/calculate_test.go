package autoscaler

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// worker is a pod that has been running and ready for an hour and whose container "c" requests a whole processor and 1 Ki of memory.
func worker(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	start := ago(time.Hour)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name), Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: requests("1", "1Ki")}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &start, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: start},
		}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
}

func phase(of corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = of } }

func going(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

// life gives a pod a start, and a condition Ready since some time.
func life(started time.Duration, ready bool, since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		start := ago(started)
		p.Status.StartTime = &start
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: ago(since)}}
	}
}

// these are so many pods p0, p1, ...
func these(n int, change ...func(*corev1.Pod)) (all []*corev1.Pod) {
	for i := range n {
		all = append(all, worker(fmt.Sprintf("p%d", i), change...))
	}
	return all
}

// uses are samples of the pods p0, p1, ... that were measured in the last minute; below 0: there is none.
func uses(values ...int64) map[string]Sample {
	samples := map[string]Sample{}
	for i, v := range values {
		if v >= 0 {
			samples[fmt.Sprintf("p%d", i)] = Sample{Value: v, At: now, Window: time.Minute}
		}
	}
	return samples
}

func poolOf(all []*corev1.Pod) pool {
	return pool{pods: all, wanted: int32(len(all)), running: int32(len(all)), tolerance: tolerance{0.1, 0.1}, now: now}
}

func TestByUtilization(t *testing.T) {
	starting := life(time.Minute, false, time.Minute)
	for _, c := range []struct {
		name   string
		pods   []*corev1.Pod
		uses   map[string]Sample
		target int32
		change func(*pool)
		want   string
		of     corev1.ResourceName // ""; cpu
		ofOne  string              // a container
	}{
		{name: "more", pods: these(3), uses: uses(300, 500, 700), target: 30, want: "5; 50% 500m"},
		{name: "fewer", pods: these(5), uses: uses(100, 300, 500, 250, 250), target: 50, want: "3; 28% 280m"},
		{name: "as it should be", pods: these(3), uses: uses(500, 500, 500), target: 50, want: "3; 50% 500m"},
		{name: "a little more", pods: these(3), uses: uses(550, 550, 550), target: 50, want: "3; 55% 550m"},
		{name: "a little less", pods: these(10), uses: uses(450, 450, 450, 450, 450, 450, 450, 450, 450, 450), target: 50, want: "10; 45% 450m"},
		{name: "just too much", pods: these(10), uses: uses(560, 560, 560, 560, 560, 560, 560, 560, 560, 560), target: 50, want: "12; 56% 560m"},
		{name: "another tolerance for more", pods: these(10), uses: uses(560, 560, 560, 560, 560, 560, 560, 560, 560, 560), target: 50,
			change: func(p *pool) { p.tolerance.up = 0.2 }, want: "10; 56% 560m"},
		{name: "another tolerance for fewer", pods: these(10), uses: uses(480, 480, 480, 480, 480, 480, 480, 480, 480, 480), target: 50,
			change: func(p *pool) { p.tolerance.down = 0.01 }, want: "10; 48% 480m"},
		{name: "more than what is requested", pods: these(2), uses: uses(3000, 3000), target: 100, want: "6; 300% 3"},
		{name: "nothing is used", pods: these(4), uses: uses(0, 0, 0, 0), target: 50, want: "0; 0% 0"},
		{name: "the target wants more pods than there are", pods: these(2), uses: uses(1000, 1000), target: 50, change: func(p *pool) { p.wanted = 10 }, want: "4; 100% 1"},

		{name: "others' samples do not count", pods: these(1), uses: uses(500, 9000), target: 50, want: "1; 50% 500m"},
		{name: "those that are going do not count", pods: []*corev1.Pod{worker("p0"), worker("p1", going), worker("p2", phase(corev1.PodFailed))},
			uses: uses(1000, 9000, 9000), target: 50, want: "2; 100% 1"},
		{name: "more, and one starts: it would do its part", pods: append(these(2), worker("p2", phase(corev1.PodPending))), uses: uses(1000, 1000), target: 50, want: "4; 100% 1"},
		{name: "more, and many start: enough", pods: append(these(1), worker("p1", starting), worker("p2", starting)), uses: uses(1000, 100, 100), target: 50, want: "3; 100% 1"},
		{name: "fewer, and one starts: it does not count", pods: append(these(4), worker("p4", starting)), uses: uses(250, 250, 250, 250, 9000), target: 50, want: "2; 25% 250m"},
		{name: "more, and of one nothing is known: as if it did nothing", pods: these(3), uses: uses(1000, 1000, -1), target: 50, want: "4; 100% 1"},
		{name: "a little more, and of one nothing is known", pods: these(3), uses: uses(600, 600, -1), target: 50, want: "3; 60% 600m"},
		{name: "fewer, and of one nothing is known: as if it did all it can", pods: these(4), uses: uses(100, 100, 100, -1), target: 50, want: "3; 10% 100m"},
		{name: "fewer, and of most nothing is known", pods: these(4), uses: uses(100, -1, -1, -1), target: 50, want: "4; 10% 100m"},
		{name: "fewer, and a target above 100%", pods: these(4), uses: uses(1000, 1000, 1000, -1), target: 200, want: "3; 100% 1"},
		{name: "enough, and of one nothing is known", pods: these(3), uses: uses(500, 500, -1), target: 50, want: "3; 50% 500m"},
		{name: "it would be more by less", pods: these(6), uses: uses(100, 100, 100, 100, 100, -1), target: 50, change: func(p *pool) { p.wanted = 2 }, want: "2; 10% 100m"},

		{name: "memory counts from the start", of: corev1.ResourceMemory, pods: []*corev1.Pod{worker("p0", starting)}, uses: uses(2 * 1024 * 1000), target: 100, want: "2; 200% 2Ki"},

		{name: "no pods", pods: nil, uses: uses(1), target: 50, want: "no pods returned by selector while calculating replica count"},
		{name: "all start", pods: these(2, starting), uses: uses(100, 100), target: 50, want: "did not receive metrics for targeted pods (pods might be unready)"},
		{name: "none is known", pods: these(2), uses: uses(), target: 50, want: "did not receive metrics for targeted pods (pods might be unready)"},
		{name: "only others", pods: these(2), uses: map[string]Sample{"x": {Value: 1}}, target: 50, want: "no metrics returned matched known pods"},
		{name: "no request", pods: these(2, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }), uses: uses(1, 1), target: 50,
			want: "missing request for cpu in container c of Pod p0"},
		{name: "requests of nothing", pods: these(2, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = requests("0", "0") }), uses: uses(1, 1), target: 50,
			want: "no metrics returned matched known pods"},
		{name: "no such container", pods: these(1), uses: uses(1), target: 50, ofOne: "d", want: "container d not found in Pod p0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := poolOf(c.pods)
			if c.change != nil {
				c.change(&p)
			}
			of := c.of
			if of == "" {
				of = corev1.ResourceCPU
			}
			n, u, err := p.byUtilization(c.uses, of, c.ofOne, c.target)
			got := fmt.Sprintf("%d; %d%% %s", n, u.percent, quantity(u.average, of))
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestRequest: what a utilization is of.
func TestRequest(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	many := worker("p", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: requests("8", "1")}, {Name: "s", RestartPolicy: &always, Resources: requests("200m", "1")}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Resources: requests("500m", "1")})
	})
	whole := many.DeepCopy()
	of := requests("3", "1")
	delete(of.Requests, corev1.ResourceMemory)
	whole.Spec.Resources = &of
	for _, c := range []struct {
		pod       *corev1.Pod
		container string
		resource  corev1.ResourceName
		want      string
	}{
		{many, "", corev1.ResourceCPU, "1700"},
		{many, "d", corev1.ResourceCPU, "500"},
		{many, "s", corev1.ResourceCPU, "200"},
		{many, "i", corev1.ResourceCPU, "container i not found in Pod p"},
		{whole, "", corev1.ResourceCPU, "3000"},
		{whole, "d", corev1.ResourceCPU, "500"},
		{whole, "", "example.org/x", "missing pod-level request for example.org/x in Pod p"},
	} {
		n, err := request(c.pod, c.container, c.resource)
		got := fmt.Sprint(n)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s of %q: got %s, want %s", c.resource, c.container, got, c.want)
		}
	}
}

// TestStarts: whose samples are for its start.
func TestStarts(t *testing.T) {
	measured := Sample{At: now.Add(-10 * time.Second), Window: 20 * time.Second}
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"ready for long", worker("p"), false},
		{"no condition", worker("p", func(p *corev1.Pod) { p.Status.Conditions = nil }), true},
		{"no start", worker("p", func(p *corev1.Pod) { p.Status.StartTime = nil }), true},
		{"young, not ready", worker("p", life(time.Minute, false, time.Minute)), true},
		{"young, ready, measured since then", worker("p", life(time.Minute, true, 31*time.Second)), false},
		{"young, ready, measured in part before", worker("p", life(time.Minute, true, 29*time.Second)), true},
		{"old, ready just now", worker("p", life(time.Hour, true, time.Second)), false},
		{"old, never ready", worker("p", life(time.Hour, false, time.Hour-time.Second)), true},
		{"old, was ready once", worker("p", life(time.Hour, false, 30*time.Minute)), false},
		{"as old as may be", worker("p", life(5*time.Minute, false, time.Minute)), false},
	} {
		if got := poolOf(nil).starts(c.pod, measured); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestByAverage(t *testing.T) {
	pending := worker("p2", phase(corev1.PodPending))
	for _, c := range []struct {
		name   string
		pods   []*corev1.Pod
		uses   map[string]Sample
		of     corev1.ResourceName
		target int64
		want   string
	}{
		{"more", these(3), uses(20000, 10000, 30000), "", 15000, "4; 20"},
		{"fewer", these(5), uses(12000, 12000, 12000, 12000, 12000), "", 20000, "3; 12"},
		{"as it should be", these(3), uses(20000, 20000, 20000), "", 20000, "3; 20"},
		{"a little more", these(3), uses(21000, 21000, 21000), "", 20000, "3; 21"},
		{"more, and one starts", append(these(2), pending), uses(40000, 40000), "", 20000, "4; 40"},
		{"more, and of one nothing is known", these(3), uses(40000, 40000, -1), "", 20000, "4; 40"},
		{"fewer, and of one nothing is known: as if it were at the target", these(4), uses(5000, 5000, 5000, -1), "", 20000, "2; 5"},
		{"more, and two have nothing: no more than there are", these(3), uses(25000, -1, -1), "", 20000, "3; 25"},
		{"not ready counts for what is no processor", these(2, life(time.Minute, false, 0)), uses(40000, 40000), "", 20000, "4; 40"},
		{"not ready does not for processors", append(these(1), worker("p1", life(time.Minute, false, 0))), uses(1500, 9000), corev1.ResourceCPU, 500, "3; 1500m"},
		{"no pods", nil, uses(1), "", 1, "no pods returned by selector while calculating replica count"},
		{"nothing known", these(2), nil, "", 1, "did not receive metrics for targeted pods (pods might be unready)"},
		{"more than can be counted", these(1), uses(math.MaxInt64), "", 1, "2147483647; 9223372036854775807m"},
	} {
		n, u, err := poolOf(c.pods).byAverage(c.uses, c.of, c.target)
		got := fmt.Sprintf("%d; %s", n, quantity(u.average, c.of))
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestWhole: metrics that are not of pods.
func TestWhole(t *testing.T) {
	unready := func(p *corev1.Pod) { pods.Condition(&p.Status, corev1.PodReady).Status = corev1.ConditionFalse }
	for _, c := range []struct {
		name          string
		pods          []*corev1.Pod
		value, target int64
		want          string
	}{
		{"more", these(3), 20000, 15000, "4"},
		{"fewer", these(5), 12000, 20000, "3"},
		{"as it should be", these(3), 15000, 15000, "3"},
		{"a little more", these(3), 16000, 15000, "3"},
		{"only those that are ready count", append(these(3), worker("x", unready), worker("y", phase(corev1.PodPending))), 30000, 15000, "6"},
		{"none is ready", these(3, unready), 30000, 15000, "0"},
		{"no pods", nil, 30000, 15000, "unable to calculate ready pods: no pods returned by selector while calculating replica count"},
		{"more than can be counted", these(3), math.MaxInt64, 1, "2147483647"},
	} {
		n, err := poolOf(c.pods).byValue(c.value, c.target)
		got := fmt.Sprint(n)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name          string
		running       int32
		value, target int64
		want          string
	}{
		{"more", 3, 100000, 20000, "5; 33334"},
		{"fewer", 5, 30000, 20000, "2; 6000"},
		{"as it should be", 4, 80000, 20000, "4; 20000"},
		{"a little less", 4, 75000, 20000, "4; 18750"},
		{"none runs yet", 0, 50000, 20000, "3; 50000"},
		{"nothing at all", 0, 0, 20000, "0; 0"},
		{"more than can be counted", 1, math.MaxInt64, 1, "2147483647; 9223372036854775807"},
	} {
		p := poolOf(nil)
		p.running = c.running
		n, each := p.byShare(c.value, c.target)
		if got := fmt.Sprintf("%d; %d", n, each); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for want, values := range map[int64][]int64{0: nil, 5: {2, 3}, math.MaxInt64: {math.MaxInt64 - 1, 2}, math.MaxInt64 - 1: {math.MaxInt64 - 1}, -1: {-3, 2}} {
		if got := sum(values); got != want {
			t.Errorf("sum of %v: %d", values, got)
		}
	}
}
