package horizontalpodautoscaler

import (
	"maps"
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// everything is an autoscaler with all fields of v2.
const everything = `
metadata: {name: a, annotations: {mine: "1"}, generation: 3}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 9
  metrics:
  - {type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: s}, metric: {name: rate, selector: {matchLabels: {a: b}}}, target: {type: Value, value: "7"}}}
  - {type: Object, object: {describedObject: {kind: Service, name: s}, metric: {name: rate}, target: {type: AverageValue, averageValue: "3"}}}
  - {type: Pods, pods: {metric: {name: queue, selector: {matchLabels: {a: b}}}, target: {type: AverageValue, averageValue: 500m}}}
  - {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 70}}}
  - {type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 300m}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 60}}}
  - {type: External, external: {metric: {name: jobs, selector: {matchLabels: {q: x}}}, target: {type: Value, value: "30"}}}
  - {type: External, external: {metric: {name: jobs}, target: {type: AverageValue, averageValue: "4"}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 5, selectPolicy: Min, policies: [{type: Pods, value: 4, periodSeconds: 60}], tolerance: 50m}
    scaleDown: {selectPolicy: Disabled, policies: [{type: Percent, value: 10, periodSeconds: 30}, {type: Pods, value: 1, periodSeconds: 1}]}
status:
  observedGeneration: 3
  lastScaleTime: "2026-01-01T10:00:00Z"
  currentReplicas: 3
  desiredReplicas: 4
  currentMetrics:
  - {type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: s}, metric: {name: rate}, current: {value: "6"}}}
  - {type: Pods, pods: {metric: {name: queue, selector: {matchLabels: {a: b}}}, current: {averageValue: 400m}}}
  - {type: Resource, resource: {name: cpu, current: {averageUtilization: 40, averageValue: 200m}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: c, current: {averageUtilization: 41, averageValue: 201m}}}
  - {type: External, external: {metric: {name: jobs}, current: {value: "29", averageValue: "3"}}}
  conditions:
  - {type: AbleToScale, status: "True", lastTransitionTime: "2026-01-01T10:00:00Z", reason: ReadyForNewScale, message: m, observedGeneration: 3}
`

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// What a client of v1 reads and writes back is what it was.
func TestThroughV1(t *testing.T) {
	for name, text := range map[string]string{
		"everything": everything,
		"little":     "spec: {maxReplicas: 1, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}",
		"no CPU":     "spec: {maxReplicas: 1, metrics: [{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 80}}}]}",
	} {
		t.Run(name, func(t *testing.T) {
			a := &autoscaler{}
			read(t, text, a)
			before := a.DeepCopy()
			v1, err := ToV1(a)
			if err != nil {
				t.Fatal(err)
			}
			if back := FromV1(v1.DeepCopy()); !apiequality.Semantic.DeepEqual(back, before) {
				t.Errorf("through v1 it is\n%+v\nand was\n%+v", back, before)
			}
			if !apiequality.Semantic.DeepEqual(a, before) {
				t.Errorf("the conversion has changed its source to %+v", a)
			}
		})
	}
}

// The form of v1, with the words of a Kubernetes API server in its annotations.
func TestToV1(t *testing.T) {
	a := &autoscaler{}
	read(t, everything, a)
	v1, err := ToV1(a)
	if err != nil {
		t.Fatal(err)
	}
	if cpu, now := v1.Spec.TargetCPUUtilizationPercentage, v1.Status.CurrentCPUUtilizationPercentage; cpu == nil || *cpu != 50 || now == nil || *now != 40 {
		t.Errorf("utilization of the CPU: target %v, is %v; want 50 and 40", cpu, now)
	}
	if got, want := slices.Sorted(maps.Keys(v1.Annotations)), []string{behaviorKey, conditionsKey, currentKey, metricsKey, "mine"}; !slices.Equal(got, want) {
		t.Errorf("annotations %q, want %q", got, want)
	}
	if got, want := v1.Annotations[behaviorKey], `{"ScaleUp":{"StabilizationWindowSeconds":5,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":"50m"},`+
		`"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Disabled","Policies":[{"Type":"Percent","Value":10,"PeriodSeconds":30},{"Type":"Pods","Value":1,"PeriodSeconds":1}],"Tolerance":null}}`; got != want {
		t.Errorf("the behavior is carried as\n%s\nwant\n%s", got, want)
	}
	little := &autoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"mine": "1", metricsKey: "[]"}}}
	if v1, err = ToV1(little); err != nil || !maps.Equal(v1.Annotations, map[string]string{"mine": "1"}) {
		t.Errorf("annotations %q, %v: what was there before carries nothing", v1.Annotations, err)
	}
}

func TestFromV1(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"nothing said": {"spec: {maxReplicas: 3}", "spec: {maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}"},
		"CPU": {"{spec: {maxReplicas: 3, targetCPUUtilizationPercentage: 20}, status: {currentCPUUtilizationPercentage: 10}}",
			"{spec: {maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 20}}}]}, " +
				"status: {currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 10}}}]}}"},
		"annotations that cannot be read": {
			"{metadata: {annotations: {autoscaling.alpha.kubernetes.io/metrics: '[', autoscaling.alpha.kubernetes.io/behavior: '{}', " +
				"autoscaling.alpha.kubernetes.io/conditions: x, autoscaling.alpha.kubernetes.io/current-metrics: '{}', mine: '1'}}, spec: {maxReplicas: 3, targetCPUUtilizationPercentage: 20}}",
			"{metadata: {annotations: {mine: '1'}}, spec: {maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 20}}}]}}"},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := &autoscalingv1.HorizontalPodAutoscaler{}, &autoscaler{}
			read(t, tc.in, in)
			read(t, tc.want, want)
			if got := FromV1(in); !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	a := &autoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"mine": "1", behaviorKey: "{}"}}}
	a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: new(resource.MustParse("20m"))}}
	setDefaults(a)
	want := &autoscaler{}
	read(t, `
metadata: {annotations: {mine: "1"}}
spec:
  minReplicas: 1
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}, {type: Percent, value: 100, periodSeconds: 15}]}
    scaleDown: {selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}], tolerance: 20m}
`, want)
	if !apiequality.Semantic.DeepEqual(a, want) {
		t.Errorf("%+v, want %+v", a, want)
	}
	if setDefaults(a); !apiequality.Semantic.DeepEqual(a, want) {
		t.Errorf("the second time: %+v", a)
	}
}

func TestTargets(t *testing.T) {
	a := &autoscaler{}
	read(t, everything, a)
	for i, want := range []string{"6/7", "<unknown>/3 (avg)", "400m/500m", "memory: <unknown>/70%", "cpu: 200m/300m", "cpu: 41%/60%", "29/30", "3/4 (avg)", "cpu: 40%/50%"} {
		// The statuses are those of the metrics in this order.
		status := autoscalingv2.MetricStatus{}
		if of := map[int]int{0: 0, 2: 1, 4: 2, 5: 3, 6: 4, 7: 4, 8: 2}; i == 0 || of[i] > 0 {
			status = a.Status.CurrentMetrics[of[i]]
		}
		if got := target(&a.Spec.Metrics[i], &status); got != want {
			t.Errorf("metric %d: %s, want %s", i, got, want)
		}
	}
	if got := targets(a); got != "6/7, <unknown>/3 (avg) + 7 more..." {
		t.Errorf("targets %s", got)
	}
	if got := targets(&autoscaler{}); got != "<none>" {
		t.Errorf("targets of none: %s", got)
	}
	if got := target(&autoscalingv2.MetricSpec{Type: "Other"}, &autoscalingv2.MetricStatus{}); got != "<unknown type>" {
		t.Errorf("a target of no type: %s", got)
	}
	a.CreationTimestamp = metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))
	table, err := Resource().Table().ConvertToTable(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"a", "Deployment/web", "6/7, <unknown>/3 (avg) + 7 more...", "2", int64(9), int64(3), "3h"}
	if got := table.Rows[0].Cells; !slices.Equal(got, want) {
		t.Errorf("row %q, want %q", got, want)
	}
}
