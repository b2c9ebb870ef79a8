package registry_test

import (
	"encoding/json"
	"reflect"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/apiserver/registry/daemonset"
	"monopod.dev/monopod/internal/apiserver/registry/deployment"
	"monopod.dev/monopod/internal/apiserver/registry/replicaset"
	"monopod.dev/monopod/internal/apiserver/registry/replicationcontroller"
	"monopod.dev/monopod/internal/apiserver/registry/statefulset"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// filled returns the specification of an object, given as YAML, without its template, once its defaults are set. They must change nothing the second time,
// nor after the object was stored.
func filled[T resource.Object, L runtime.Object](of resource.Of[T, L]) func(t *testing.T, text string) map[string]any {
	return func(t *testing.T, text string) map[string]any {
		t.Helper()
		read := func(text []byte) T {
			obj := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
			if err := yaml.UnmarshalStrict(text, obj); err != nil {
				t.Fatal(err)
			}
			of.Default(obj)
			return obj
		}
		obj := read([]byte(text))
		stored, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if again := read(stored); !apiequality.Semantic.DeepEqual(again, obj) {
			t.Errorf("the object that was stored is not the one that is read:\n%s", stored)
		}
		var got struct{ Spec map[string]any }
		if err := json.Unmarshal(stored, &got); err != nil {
			t.Fatal(err)
		}
		template, ok := got.Spec["template"].(map[string]any)
		if pod, _ := template["spec"].(map[string]any); !ok || pod["restartPolicy"] != "Always" {
			t.Errorf("the template has not got its defaults: %v", template)
		}
		delete(got.Spec, "template")
		return got.Spec
	}
}

func TestDefaultsOfWorkloads(t *testing.T) {
	deploy, sts, ds := filled(deployment.Resource()), filled(statefulset.Resource()), filled(daemonset.Resource())
	rs, rc := filled(replicaset.Resource()), filled(replicationcontroller.Resource())
	const made = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
	for name, tc := range map[string]struct {
		fill       func(*testing.T, string) map[string]any
		text, want string
	}{
		"deployment": {deploy, "spec: {" + made + "}", "{replicas: 1, selector: null, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}, " +
			"revisionHistoryLimit: 10, progressDeadlineSeconds: 600}"},
		"deployment that says": {deploy, "spec: {replicas: 0, revisionHistoryLimit: 0, progressDeadlineSeconds: 1, strategy: {rollingUpdate: {maxSurge: 0}}, " + made + "}",
			"{replicas: 0, selector: null, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 25%}}, revisionHistoryLimit: 0, progressDeadlineSeconds: 1}"},
		"deployment, recreated": {deploy, "spec: {strategy: {type: Recreate}, " + made + "}", "{replicas: 1, selector: null, strategy: {type: Recreate}, revisionHistoryLimit: 10, progressDeadlineSeconds: 600}"},
		"replica set":           {rs, "spec: {" + made + "}", "{replicas: 1, selector: null}"},
		"controller":            {rc, "spec: {" + made + "}", "{replicas: 1, selector: {a: b}}"},
		"controller that says":  {rc, "spec: {replicas: 0, selector: {c: d}, " + made + "}", "{replicas: 0, selector: {c: d}}"},
		"stateful set": {sts, "spec: {" + made + "}", "{replicas: 1, selector: null, serviceName: '', podManagementPolicy: OrderedReady, revisionHistoryLimit: 10, " +
			"updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0, maxUnavailable: 1}}, persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}}"},
		"stateful set of claims": {sts, "spec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {resources: {requests: {storage: 1.0000001Gi}}}}], " + made + "}", "{replicas: 1, selector: null, serviceName: '', podManagementPolicy: OrderedReady, revisionHistoryLimit: 10, " +
			"updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0, maxUnavailable: 1}}, persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}, " +
			"volumeClaimTemplates: [{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {volumeMode: Filesystem, resources: {requests: {storage: '1073741931375m'}}}, status: {phase: Pending}}]}"},
		// A strategy that is named is not filled in.
		"stateful set that says": {sts, "spec: {updateStrategy: {type: RollingUpdate}, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}, " + made + "}",
			"{replicas: 1, selector: null, serviceName: '', podManagementPolicy: OrderedReady, revisionHistoryLimit: 10, updateStrategy: {type: RollingUpdate}, " +
				"persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}}"},
		"daemon set": {ds, "spec: {" + made + "}", "{selector: null, revisionHistoryLimit: 10, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}"},
		"daemon set that says": {ds, "spec: {updateStrategy: {type: OnDelete}, " + made + "}",
			"{selector: null, revisionHistoryLimit: 10, updateStrategy: {type: OnDelete}}"},
	} {
		t.Run(name, func(t *testing.T) {
			var want map[string]any
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if got := tc.fill(t, tc.text); !reflect.DeepEqual(got, want) {
				t.Errorf("specification\n%v, want\n%v", got, want)
			}
		})
	}
}
