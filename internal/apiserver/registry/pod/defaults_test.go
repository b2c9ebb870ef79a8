package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func TestDefaults(t *testing.T) {
	const given = `
spec:
  containers:
  - name: a
    image: web
    ports: [{containerPort: 80}]
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {limits: {cpu: 1, example.com/widget: 2, memory: 1Gi}, requests: {memory: 1Mi}}
  volumes:
  - name: nothing
  - {name: conf, configMap: {name: cm}}
  - {name: host, hostPath: {path: /srv}}
  - {name: sec, secret: {secretName: s, defaultMode: 256}}
  - {name: model, image: {reference: 'r.example/model:1'}}
  - {name: newest, image: {reference: r.example/model}}
`
	const want = `metadata: {}
spec:
  containers:
  - env:
    - name: NAME
      valueFrom:
        fieldRef:
          apiVersion: v1
          fieldPath: metadata.name
    image: web
    imagePullPolicy: Always
    name: a
    ports:
    - containerPort: 80
      protocol: TCP
    resources:
      limits:
        cpu: "1"
        example.com/widget: "2"
        memory: 1Gi
      requests:
        cpu: "1"
        example.com/widget: "2"
        memory: 1Mi
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  terminationGracePeriodSeconds: 30
  volumes:
  - emptyDir: {}
    name: nothing
  - configMap:
      defaultMode: 420
      name: cm
    name: conf
  - hostPath:
      path: /srv
      type: ""
    name: host
  - name: sec
    secret:
      defaultMode: 256
      secretName: s
  - image:
      pullPolicy: IfNotPresent
      reference: r.example/model:1
    name: model
  - image:
      pullPolicy: Always
      reference: r.example/model
    name: newest
status: {}
`
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(given), &pod); err != nil {
		t.Fatal(err)
	}
	scheme.Default(&pod)
	got, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("with defaults:\n%s\nwant:\n%s", got, want)
	}
	scheme.Default(&pod)
	if again, _ := yaml.Marshal(pod); string(again) != want {
		t.Errorf("defaulted twice:\n%s", again)
	}
}
