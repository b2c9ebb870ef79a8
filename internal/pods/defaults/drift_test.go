package defaults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"
)

// filler fills specifications at random, about half of what may be left out. What a seed makes of the types does not change from run to run.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.5).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewScaledQuantity(c.Int63n(1<<40), resource.Scale(c.Intn(12)-9))
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31()) },
		func(v *metav1.Time, c randfill.Continue) { *v = metav1.Unix(c.Int63n(1<<32), 0) },
		func(v *metav1.ObjectMeta, _ randfill.Continue) {}, // of a claim in a volume; not what this is about
		func(v *string, c randfill.Continue) { *v = []string{"", "a:1", "b", "c/d@sha256:12"}[c.Intn(4)] },
		func(v *int32, c randfill.Continue) { *v = c.Int31n(3) },
	)
}

// TestNothingDrifts: what was stored with its defaults, a pod or a template in a workload, is the same when it is read and gets its defaults again.
// Otherwise each reader would see, and each writer write, a change that nobody made.
func TestNothingDrifts(t *testing.T) {
	for seed := range int64(300) {
		template := corev1.PodTemplateSpec{}
		filler(seed).Fill(&template.Spec)
		pod := corev1.Pod{Spec: *template.Spec.DeepCopy()}
		Template(&template)
		Pod(&pod)
		for name, c := range map[string]struct {
			set   any
			again func(stored []byte) (any, error)
		}{
			"template": {set: &template, again: func(stored []byte) (any, error) {
				var read corev1.PodTemplateSpec
				err := json.Unmarshal(stored, &read)
				Template(&read)
				return &read, err
			}},
			"pod": {set: &pod, again: func(stored []byte) (any, error) {
				var read corev1.Pod
				err := json.Unmarshal(stored, &read)
				Pod(&read)
				return &read, err
			}},
		} {
			stored, err := json.Marshal(c.set)
			if err != nil {
				t.Fatal(err)
			}
			read, err := c.again(stored)
			if err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(read, c.set) {
				t.Fatalf("seed %d: the %s that was stored is not the one that is read: %s", seed, name, firstDifference(c.set, read))
			}
		}
		// What is made from a template has all that the template has: setting a pod's defaults before or after those of a template is the same.
		made := corev1.Pod{Spec: *template.Spec.DeepCopy()}
		if Pod(&made); !apiequality.Semantic.DeepEqual(made, pod) {
			t.Fatalf("seed %d: a pod of the template differs from one of the same specification: %s", seed, firstDifference(made, pod))
		}
	}
}

// firstDifference is where two objects differ, as YAML.
func firstDifference(a, b any) string {
	textA, _ := yaml.Marshal(a)
	textB, _ := yaml.Marshal(b)
	linesA, linesB := strings.Split(string(textA), "\n"), strings.Split(string(textB), "\n")
	for i := range min(len(linesA), len(linesB)) {
		if linesA[i] != linesB[i] {
			return fmt.Sprintf("%q, then %q, after %q", linesA[i], linesB[i], linesA[max(0, i-8):i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(linesA), len(linesB))
}

// TestTemplate writes down what a template gets, and what only the pod does that is made from it.
func TestTemplate(t *testing.T) {
	const given = `
spec:
  serviceAccount: robot
  hostNetwork: true
  overhead: {cpu: 1500u}
  initContainers:
  - name: i
    image: r.example:5000/i@sha256:12
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {grpc: {port: 80}, periodSeconds: 3}
    lifecycle: {preStop: {httpGet: {port: 80, scheme: HTTPS, path: /bye}}, postStart: {httpGet: {port: 80}}}
  containers:
  - name: a
    image: a:1
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1}}
    env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]
  ephemeralContainers:
  - {name: e, image: e}
  volumes:
  - name: down
    downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}
  - name: all
    projected:
      sources:
      - downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}
      - serviceAccountToken: {path: t}
`
	const want = `metadata: {}
spec:
  containers:
  - env:
    - name: CPU
      valueFrom:
        resourceFieldRef:
          divisor: "0"
          resource: limits.cpu
    image: a:1
    imagePullPolicy: IfNotPresent
    name: a
    ports:
    - containerPort: 80
      protocol: TCP
    resources:
      limits:
        cpu: "1"
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  dnsPolicy: ClusterFirst
  ephemeralContainers:
  - image: e
    imagePullPolicy: Always
    name: e
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  hostNetwork: true
  initContainers:
  - image: r.example:5000/i@sha256:12
    imagePullPolicy: IfNotPresent
    lifecycle:
      postStart:
        httpGet:
          path: /
          port: 80
          scheme: HTTP
      preStop:
        httpGet:
          path: /bye
          port: 80
          scheme: HTTPS
    livenessProbe:
      failureThreshold: 3
      httpGet:
        path: /
        port: 80
        scheme: HTTP
      periodSeconds: 10
      successThreshold: 1
      timeoutSeconds: 1
    name: i
    readinessProbe:
      failureThreshold: 3
      grpc:
        port: 80
        service: ""
      periodSeconds: 3
      successThreshold: 1
      timeoutSeconds: 1
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  overhead:
    cpu: 2m
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  serviceAccount: robot
  serviceAccountName: robot
  terminationGracePeriodSeconds: 30
  volumes:
  - downwardAPI:
      defaultMode: 420
      items:
      - fieldRef:
          apiVersion: v1
          fieldPath: metadata.name
        path: a
    name: down
  - name: all
    projected:
      defaultMode: 420
      sources:
      - downwardAPI:
          items:
          - fieldRef:
              apiVersion: v1
              fieldPath: metadata.name
            path: a
      - serviceAccountToken:
          expirationSeconds: 3600
          path: t
`
	var template corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict([]byte(given), &template); err != nil {
		t.Fatal(err)
	}
	Template(&template)
	got, err := yaml.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("with defaults:\n%s\nwant:\n%s", got, want)
	}
	pod := corev1.Pod{Spec: template.Spec}
	Pod(&pod)
	a := pod.Spec.Containers[0]
	if q := a.Resources.Requests[corev1.ResourceCPU]; q.String() != "1" || a.Ports[0].HostPort != 80 || pod.Spec.EnableServiceLinks == nil || !*pod.Spec.EnableServiceLinks {
		t.Errorf("only a pod has: requests %v, host port %d, links %v", a.Resources.Requests, a.Ports[0].HostPort, pod.Spec.EnableServiceLinks)
	}
}
