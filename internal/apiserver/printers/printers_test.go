package printers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func ended(reason string, code, signal int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}
}

type container struct {
	state    corev1.ContainerState
	ready    bool
	restarts int32
	last     time.Duration // since the last restart; 0: none
}

func statuses(list []container) (specs []corev1.Container, result []corev1.ContainerStatus) {
	for i, c := range list {
		s := corev1.ContainerStatus{Name: fmt.Sprint("c", i), State: c.state, Ready: c.ready, RestartCount: c.restarts}
		if c.last > 0 {
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ago(c.last)}
		}
		specs, result = append(specs, corev1.Container{Name: s.Name}), append(result, s)
	}
	return specs, result
}

func TestPodRow(t *testing.T) {
	for _, tc := range []struct {
		name       string
		phase      corev1.PodPhase
		reason     string
		deleted    bool
		gated      bool
		conditions []corev1.PodConditionType // those that are true
		init, main []container
		want       string // READY STATUS RESTARTS
	}{
		{name: "nobody looked at it", phase: corev1.PodPending, main: []container{{}, {}}, want: "0/2 Pending 0"},
		{name: "creating", phase: corev1.PodPending, main: []container{{state: waiting("ContainerCreating")}}, want: "0/1 ContainerCreating 0"},
		{name: "running", phase: corev1.PodRunning, main: []container{{state: running(), ready: true}}, want: "1/1 Running 0"},
		{name: "one of two ready", phase: corev1.PodRunning, main: []container{{state: running(), ready: true}, {state: running()}}, want: "1/2 Running 0"},
		{name: "back-off", phase: corev1.PodRunning, main: []container{{state: waiting("CrashLoopBackOff"), restarts: 3, last: 5 * time.Second}},
			want: "0/1 CrashLoopBackOff 3 (5s ago)"},
		{name: "the first container speaks", phase: corev1.PodRunning,
			main: []container{{state: waiting("ErrImagePull")}, {state: waiting("CrashLoopBackOff"), restarts: 1}}, want: "0/2 ErrImagePull 1"},
		{name: "restarts add up, the last counts", phase: corev1.PodRunning,
			main: []container{{state: running(), ready: true, restarts: 1, last: time.Hour}, {state: running(), ready: true, restarts: 2, last: time.Minute}},
			want: "2/2 Running 3 (60s ago)"},
		{name: "error", phase: corev1.PodFailed, main: []container{{state: ended("Error", 7, 0)}}, want: "0/1 Error 0"},
		{name: "exit code without reason", phase: corev1.PodFailed, main: []container{{state: ended("", 7, 0)}}, want: "0/1 ExitCode:7 0"},
		{name: "signal without reason", phase: corev1.PodFailed, main: []container{{state: ended("", 137, 9)}}, want: "0/1 Signal:9 0"},
		{name: "completed", phase: corev1.PodSucceeded, main: []container{{state: ended("Completed", 0, 0)}}, want: "0/1 Completed 0"},
		{name: "one completed, one at work", phase: corev1.PodRunning,
			main: []container{{state: ended("Completed", 0, 0)}, {state: running(), ready: true}}, want: "1/2 NotReady 0"},
		{name: "one completed, the pod ready", phase: corev1.PodRunning, conditions: []corev1.PodConditionType{corev1.PodReady},
			main: []container{{state: ended("Completed", 0, 0)}, {state: running(), ready: true}}, want: "1/2 Running 0"},
		{name: "reason of the pod", phase: corev1.PodFailed, reason: "Evicted", main: []container{{}}, want: "0/1 Evicted 0"},
		{name: "gated", phase: corev1.PodPending, gated: true, main: []container{{}}, want: "0/1 SchedulingGated 0"},
		{name: "terminating", phase: corev1.PodRunning, deleted: true, main: []container{{state: running(), ready: true}}, want: "1/1 Terminating 0"},
		{name: "deleted when it had ended", phase: corev1.PodSucceeded, deleted: true, main: []container{{state: ended("Completed", 0, 0)}}, want: "0/1 Completed 0"},
		{name: "node lost", phase: corev1.PodRunning, reason: "NodeLost", deleted: true, main: []container{{}}, want: "0/1 Unknown 0"},

		{name: "first init container", phase: corev1.PodPending, init: []container{{state: running()}, {state: waiting("PodInitializing")}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 Init:0/2 0"},
		{name: "second init container", phase: corev1.PodPending, init: []container{{state: ended("Completed", 0, 0)}, {state: running()}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 Init:1/2 0"},
		{name: "failed init container", phase: corev1.PodPending, init: []container{{state: ended("Error", 1, 0), restarts: 2, last: time.Minute}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 Init:Error 2 (60s ago)"},
		{name: "init container without reason", phase: corev1.PodPending, init: []container{{state: ended("", 2, 0)}}, main: []container{{}}, want: "0/1 Init:ExitCode:2 0"},
		{name: "init container in back-off", phase: corev1.PodPending, init: []container{{state: waiting("CrashLoopBackOff"), restarts: 4}}, main: []container{{}}, want: "0/1 Init:CrashLoopBackOff 4"},
		{name: "initialized", phase: corev1.PodPending, init: []container{{state: ended("Completed", 0, 0), restarts: 2}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 PodInitializing 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: tc.phase, Reason: tc.reason}}
			pod.Spec.Containers, pod.Status.ContainerStatuses = statuses(tc.main)
			pod.Spec.InitContainers, pod.Status.InitContainerStatuses = statuses(tc.init)
			for _, c := range tc.conditions {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue})
			}
			if tc.gated {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated})
			}
			if tc.deleted {
				pod.DeletionTimestamp = &metav1.Time{Time: now}
			}
			cells, _ := podRow(pod, now)
			if got := fmt.Sprintf("%v %v %v", cells[1], cells[2], cells[3]); got != tc.want {
				t.Errorf("READY STATUS RESTARTS = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPodRowSaysThatItHasEnded(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]string{corev1.PodSucceeded: "Succeeded", corev1.PodFailed: "Failed", corev1.PodRunning: ""} {
		_, conditions := podRow(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}, now)
		var got string
		for _, c := range conditions {
			got += c.Reason
		}
		if got != want {
			t.Errorf("phase %s: row conditions %v, want reason %q", phase, conditions, want)
		}
	}
}

// render writes a table as kubectl does, without its padding.
func render(t *testing.T, convertor rest.TableConvertor, obj runtime.Object, wide bool) string {
	t.Helper()
	table, err := convertor.ConvertToTable(context.Background(), obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	var shown []int
	var lines []string
	var heads []string
	for i, c := range table.ColumnDefinitions {
		if c.Description == "" {
			t.Errorf("column %s has no description", c.Name)
		}
		if c.Priority == 0 || wide {
			shown = append(shown, i)
			heads = append(heads, strings.ToUpper(c.Name))
		}
	}
	lines = append(lines, strings.Join(heads, "|"))
	for _, row := range table.Rows {
		if len(row.Cells) != len(table.ColumnDefinitions) {
			t.Fatalf("%d cells for %d columns", len(row.Cells), len(table.ColumnDefinitions))
		}
		var cells []string
		for _, i := range shown {
			cells = append(cells, fmt.Sprint(row.Cells[i]))
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return strings.Join(lines, "\n")
}

func TestTables(t *testing.T) {
	born := metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))
	meta := metav1.ObjectMeta{Name: "x", CreationTimestamp: born}
	holder := "me"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: born, Labels: map[string]string{
			"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/agent": "", "kubernetes.io/role": "agent"}},
		Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1", OSImage: "Debian", KernelVersion: "6.1", ContainerRuntimeVersion: "monopod://1"},
		},
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, Type: "Warning", Reason: "Failed", Message: " no luck\n", Count: 4,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.containers{c}"},
		Source:         corev1.EventSource{Component: "agent", Host: "n1"},
		FirstTimestamp: metav1.NewTime(time.Now().Add(-2*time.Hour - time.Second)), LastTimestamp: born,
	}
	fresh := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "f"}, Type: "Normal", Reason: "Made", Message: "made",
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		EventTime:      metav1.NewMicroTime(born.Time), ReportingController: "c", ReportingInstance: "c-1",
		Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(time.Now().Add(-time.Hour - time.Second))},
	}
	for _, tc := range []struct {
		name      string
		convertor rest.TableConvertor
		obj       runtime.Object
		wide      bool
		want      string
	}{
		{"namespace", Namespaces(), &corev1.Namespace{ObjectMeta: meta, Status: corev1.NamespaceStatus{Phase: "Active"}}, false, "NAME|STATUS|AGE\nx|Active|3h"},
		{"configmap", ConfigMaps(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}, false, "NAME|DATA|AGE\nx|2|3h"},
		{"secret", Secrets(), &corev1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"a": nil}}, false, "NAME|TYPE|DATA|AGE\nx|Opaque|1|3h"},
		{"service account", ServiceAccounts(), &corev1.ServiceAccount{ObjectMeta: meta}, false, "NAME|SECRETS|AGE\nx|0|3h"},
		{"lease", Leases(), &coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, false, "NAME|HOLDER|AGE\nx|me|3h"},
		{"pod without anything", Pods(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, true,
			"NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES\np|0/0||0|<unknown>|<none>|<none>|<none>|<none>"},
		{"list of pods", Pods(), &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: meta}, {ObjectMeta: meta}}}, false,
			"NAME|READY|STATUS|RESTARTS|AGE\nx|0/0||0|3h\nx|0/0||0|3h"},
		{"node", Nodes(), node, true,
			"NAME|STATUS|ROLES|AGE|VERSION|INTERNAL-IP|EXTERNAL-IP|OS-IMAGE|KERNEL-VERSION|CONTAINER-RUNTIME\n" +
				"n1|Ready,SchedulingDisabled|agent,control-plane|3h|v1|10.0.0.1|<none>|Debian|6.1|monopod://1"},
		{"node that nobody heard of", Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, false,
			"NAME|STATUS|ROLES|AGE|VERSION\nn2|Unknown|<none>|<unknown>|"},
		{"events", Events(), &corev1.EventList{Items: []corev1.Event{*event, *fresh}}, false,
			"LAST SEEN|TYPE|REASON|OBJECT|MESSAGE\n3h|Warning|Failed|pod/p|no luck\n60m|Normal|Made|node/n1|made"},
		{"events, wide", Events(), &corev1.EventList{Items: []corev1.Event{*event, *fresh}}, true,
			"LAST SEEN|TYPE|REASON|OBJECT|SUBOBJECT|SOURCE|MESSAGE|FIRST SEEN|COUNT|NAME\n" +
				"3h|Warning|Failed|pod/p|spec.containers{c}|agent, n1|no luck|120m|4|e\n60m|Normal|Made|node/n1||c, c-1|made|3h|3|f"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := render(t, tc.convertor, tc.obj, tc.wide); got != tc.want {
				t.Errorf("table:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

func TestTableKeepsTheListsMetadata(t *testing.T) {
	left := int64(7)
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "12", Continue: "more", RemainingItemCount: &left}}
	table, err := Pods().ConvertToTable(context.Background(), list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	if table.ResourceVersion != "12" || table.Continue != "more" || *table.RemainingItemCount != 7 {
		t.Errorf("list metadata %+v", table.ListMeta)
	}
	if table.ColumnDefinitions != nil {
		t.Error("headers, although the client has them already")
	}
}

func TestTableOfSomethingElseIsNotAcceptable(t *testing.T) {
	_, err := Pods().ConvertToTable(context.Background(), &corev1.Node{}, nil)
	if apierrors.ReasonForError(err) != metav1.StatusReasonNotAcceptable {
		t.Errorf("error %v, want reason NotAcceptable", err)
	}
}
