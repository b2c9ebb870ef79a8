package registry_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/apiserver/registry/persistentvolume"
	"monopod.dev/monopod/internal/apiserver/registry/persistentvolumeclaim"
)

// volumeOf is a volume with more in its specification.
func volumeOf(more string) string {
	return "spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, " + more + "}"
}

func TestRulesOfPersistentVolumes(t *testing.T) {
	pv := rulesOf(persistentvolume.Resource())
	const nfs, csi = "nfs: {server: s, path: /a}", "csi: {driver: a.b, volumeHandle: h}"
	on := func(expression string) string {
		return "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [" + expression + "]}]}}"
	}
	at := on("{key: kubernetes.io/hostname, operator: In, values: [n1]}")
	for name, tc := range map[string]ruleCase{
		"nfs":                   {pv, volumeOf(nfs + ", mountOptions: [ro], storageClassName: c, volumeMode: Filesystem, persistentVolumeReclaimPolicy: Delete, claimRef: {namespace: a, name: b}"), "", ""},
		"local":                 {pv, volumeOf("local: {path: /a}, volumeMode: Block, " + at), "", ""},
		"host path":             {pv, volumeOf("hostPath: {path: /a, type: DirectoryOrCreate}"), "", ""},
		"csi":                   {pv, volumeOf(csi + ", volumeAttributesClassName: gold"), "", ""},
		"nothing":               {pv, volumeOf(""), "", "spec: Required value: must specify a volume type"},
		"two kinds":             {pv, volumeOf(nfs + ", hostPath: {path: /a}"), "", "spec.nfs: Forbidden: may not specify more than 1 volume type"},
		"no modes":              {pv, "spec: {capacity: {storage: 1Gi}, " + nfs + "}", "", "spec.accessModes: Required value"},
		"a mode":                {pv, "spec: {accessModes: [Some], capacity: {storage: 1Gi}, " + nfs + "}", "", `spec.accessModes: Unsupported value: "Some": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`},
		"for a pod and others":  {pv, "spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany], capacity: {storage: 1Gi}, " + nfs + "}", "", "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"},
		"a size of nothing":     {pv, "spec: {accessModes: [ReadWriteOnce], capacity: {storage: '0'}, " + nfs + "}", "", `spec.capacity[storage]: Invalid value: "0": must be greater than zero`},
		"another size":          {pv, "spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1, cpu: 1}, " + nfs + "}", "", "spec.capacity: Unsupported value"},
		"recycled":              {pv, volumeOf(nfs + ", persistentVolumeReclaimPolicy: Recycle"), "", "spec.persistentVolumeReclaimPolicy: Forbidden: not supported by Monopod yet: use Retain or Delete"},
		"class":                 {pv, volumeOf(nfs + ", storageClassName: A"), "", "spec.storageClassName: Invalid value"},
		"mode of the volume":    {pv, volumeOf(nfs + ", volumeMode: Some"), "", `spec.volumeMode: Unsupported value: "Some": supported values: "Block", "Filesystem"`},
		"attributes of no name": {pv, volumeOf(csi + ", volumeAttributesClassName: ''"), "", "spec.volumeAttributesClassName: Required value: an empty string is disallowed"},
		"attributes of a path":  {pv, volumeOf(nfs + ", volumeAttributesClassName: gold"), "", "spec.csi: Required value: has to be specified when using volumeAttributesClassName"},
		"nowhere":               {pv, volumeOf(nfs + ", nodeAffinity: {}"), "", "spec.nodeAffinity.required: Required value: must specify required node constraints"},
		"no terms":              {pv, volumeOf(nfs + ", nodeAffinity: {required: {nodeSelectorTerms: []}}"), "", "spec.nodeAffinity.required.nodeSelectorTerms: Required value"},
		"a term":                {pv, volumeOf(nfs + ", " + on("{key: a, operator: Some}")), "", "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value"},
		"local everywhere":      {pv, volumeOf("local: {path: /a}"), "", "spec.nodeAffinity: Required value: Local volume requires node affinity"},
		"local, path up":        {pv, volumeOf("local: {path: /a/../b}, " + at), "", "spec.local.path: Invalid value: \"/a/../b\": must not contain '..'"},
		"local, no path":        {pv, volumeOf("local: {}, " + at), "", "spec.local.path: Required value"},
		"host path, type":       {pv, volumeOf("hostPath: {path: /a, type: Some}"), "", "spec.hostPath.type: Unsupported value"},
		"nfs, relative":         {pv, volumeOf("nfs: {server: s, path: a}"), "", "spec.nfs.path: Invalid value: \"a\": must be an absolute path"},
		"nfs, no server":        {pv, volumeOf("nfs: {path: /a}"), "", "spec.nfs.server: Required value"},
		"csi, no handle":        {pv, volumeOf("csi: {driver: a.b}"), "", "spec.csi.volumeHandle: Required value"},
		"csi, driver":           {pv, volumeOf("csi: {driver: a_b, volumeHandle: h}"), "", "spec.csi.driver: Invalid value"},
		"csi, secret":           {pv, volumeOf("csi: {driver: a.b, volumeHandle: h, nodePublishSecretRef: {name: s}}"), "", "spec.csi.nodePublishSecretRef.namespace: Required value"},
		"of another driver":     {pv, volumeOf("rbd: {monitors: [m], image: i}"), "", "spec.rbd: Forbidden: not supported by Monopod yet: use a volume of the kind csi, of the driver rbd.csi.ceph.com"},
		"old mount options":     {pv, "{metadata: {annotations: {volume.beta.kubernetes.io/mount-options: ro}}, " + volumeOf("hostPath: {path: /a}") + "}", "", "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"},

		"it becomes another":     {pv, volumeOf("nfs: {server: t, path: /a}"), volumeOf(nfs), "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"},
		"it becomes a device":    {pv, volumeOf(nfs + ", volumeMode: Block"), volumeOf(nfs), "volumeMode: Invalid value"},
		"it gets a claim":        {pv, volumeOf(nfs + ", claimRef: {namespace: a, name: b, uid: u}"), volumeOf(nfs), ""},
		"it grows":               {pv, "spec: {accessModes: [ReadWriteOnce, ReadOnlyMany], capacity: {storage: 2Gi}, persistentVolumeReclaimPolicy: Delete, " + nfs + "}", volumeOf(nfs), ""},
		"it gets a place":        {pv, volumeOf(nfs + ", " + at), volumeOf(nfs), ""},
		"it moves":               {pv, volumeOf("local: {path: /a}, " + on("{key: a, operator: Exists}")), volumeOf("local: {path: /a}, " + at), "nodeAffinity: Invalid value"},
		"its place gets a name":  {pv, volumeOf(nfs + ", " + on("{key: topology.kubernetes.io/zone, operator: In, values: [z]}")), volumeOf(nfs + ", " + on("{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [z]}")), ""},
		"its place gets another": {pv, volumeOf(nfs + ", " + on("{key: topology.kubernetes.io/zone, operator: In, values: [y]}")), volumeOf(nfs + ", " + on("{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [z]}")), "nodeAffinity: Invalid value"},
		"its attributes go":      {pv, volumeOf(csi), volumeOf(csi + ", volumeAttributesClassName: gold"), "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"},
		"it gets a secret":       {pv, volumeOf("csi: {driver: a.b, volumeHandle: h, controllerExpandSecretRef: {name: s, namespace: ns}}"), volumeOf(csi), ""},
	} {
		t.Run(name, tc.check)
	}
}

// Each kind of volume has its rules, although most are refused by name as well: by who reads what is wrong with a specification.
func TestRulesOfVolumeSources(t *testing.T) {
	iqn := "iscsi: {targetPortal: p, iqn: 'iqn.2001-04.com.example:a', lun: 1"
	for what, want := range map[string]string{
		"gcePersistentDisk: {pdName: d, partition: 256}":             "spec.gcePersistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
		"awsElasticBlockStore: {volumeID: ''}":                       "spec.awsElasticBlockStore.volumeID: Required value",
		"glusterfs: {endpoints: e, path: p, endpointsNamespace: ''}": "spec.glusterfs.endpointsNamespace: Invalid value",
		"flocker: {}":                                                                  "spec.flocker: Required value: one of datasetName and datasetUUID is required",
		"flocker: {datasetName: a/b}":                                                  "spec.flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
		"rbd: {monitors: [m], image: ''}":                                              "spec.rbd.image: Required value",
		"quobyte: {registry: r, volume: v}":                                            "spec.quobyte.registry: Invalid value: \"r\": must be a host:port pair or multiple pairs separated by commas",
		"cephfs: {monitors: []}":                                                       "spec.cephfs.monitors: Required value",
		"iscsi: {targetPortal: p, iqn: a, lun: 1}":                                     "spec.iscsi.iqn: Invalid value: \"a\": must be valid format",
		"iscsi: {targetPortal: p, iqn: eui.0123456789abcdef, lun: 256}":                "spec.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
		iqn + ", chapAuthSession: true}":                                               "spec.iscsi.secretRef: Required value",
		iqn + ", secretRef: {}}":                                                       "spec.iscsi.secretRef.name: Required value",
		iqn + ", initiatorName: a}":                                                    "spec.iscsi.initiatorname: Invalid value",
		"cinder: {volumeID: v, secretRef: {name: s}}":                                  "spec.cinder.secretRef.namespace: Required value",
		"fc: {targetWWNs: [w]}":                                                        "spec.fc.lun: Required value: lun is required if targetWWNs is specified",
		"fc: {}":                                                                       "spec.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both",
		"fc: {wwids: [w], targetWWNs: [w], lun: 0}":                                    "spec.fc.targetWWNs: Invalid value",
		"flexVolume: {driver: d, options: {a.k8s.io/b: c}}":                            "spec.flexVolume.options[a.k8s.io/b]: Invalid value",
		"azureFile: {secretName: s, shareName: h, secretNamespace: ''}":                "spec.azureFile.secretNamespace: Required value",
		"vsphereVolume: {volumePath: ''}":                                              "spec.vsphereVolume.volumePath: Required value",
		"photonPersistentDisk: {pdID: ''}":                                             "spec.photonPersistentDisk.pdID: Required value",
		"portworxVolume: {volumeID: ''}":                                               "spec.portworxVolume.volumeID: Required value",
		"azureDisk: {diskName: d, diskURI: 'https://a', kind: Managed}":                "spec.azureDisk.diskURI: Unsupported value",
		"azureDisk: {diskName: d, diskURI: 'https://a', kind: Shared, cachingMode: x}": "spec.azureDisk.cachingMode: Unsupported value",
		"scaleIO: {gateway: g, system: s, secretRef: null}":                            "spec.scaleIO.volumeName: Required value",
		"storageos: {volumeName: A}":                                                   "spec.storageos.volumeName: Invalid value",
	} {
		v := &corev1.PersistentVolume{}
		if err := yaml.UnmarshalStrict([]byte(volumeOf(what)), v); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		errs := persistentvolume.Resource().Create(v)
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%s: %v, want %s", what, errs, want)
		}
	}
}

func TestRulesOfPersistentVolumeClaims(t *testing.T) {
	pvc := rulesOf(persistentvolumeclaim.Resource())
	sized := func(size, more string) string {
		return "{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: " + size + "}}, " + more + "}}"
	}
	of := func(more string) string { return sized("2Gi", more) }
	in := func(status, size, more string) string {
		return "{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: " + size + "}}, " + more + "}, status: {" + status + "}}"
	}
	const bound = "phase: Bound, capacity: {storage: 2Gi}"
	old := func(class, more string) string {
		return "{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: " + class + "}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}, " + more + "}}"
	}
	for name, tc := range map[string]ruleCase{
		"claim":                    {pvc, of("selector: {matchLabels: {a: b}}, storageClassName: c, volumeMode: Block, volumeAttributesClassName: g, volumeName: v"), "", ""},
		"of no class":              {pvc, of("storageClassName: ''"), "", ""},
		"no modes":                 {pvc, "spec: {resources: {requests: {storage: 1Gi}}}", "", "spec.accessModes: Required value: at least 1 access mode is required"},
		"no size":                  {pvc, "spec: {accessModes: [ReadWriteOnce]}", "", "spec.resources[storage]: Required value"},
		"nothing":                  {pvc, sized("'0'", ""), "", `spec.resources[storage]: Invalid value: "0": must be greater than zero`},
		"a part of a byte":         {pvc, sized("0.1Gi", ""), "", ""},
		"modes":                    {pvc, "spec: {accessModes: [ReadWriteOncePod, ReadWriteMany], resources: {requests: {storage: 1Gi}}}", "", "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"},
		"selector":                 {pvc, of("selector: {matchLabels: {a: 'b c'}}"), "", "spec.selector.matchLabels: Invalid value"},
		"class":                    {pvc, of("storageClassName: A"), "", "spec.storageClassName: Invalid value"},
		"attributes":               {pvc, of("volumeAttributesClassName: A"), "", "spec.volumeAttributesClassName: Invalid value"},
		"mode":                     {pvc, of("volumeMode: Some"), "", "spec.volumeMode: Unsupported value"},
		"of another claim":         {pvc, of("dataSource: {kind: PersistentVolumeClaim, name: c}"), "", ""},
		"of a snapshot":            {pvc, of("dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: c}"), "", ""},
		"of anything":              {pvc, of("dataSourceRef: {apiGroup: a.b, kind: Thing, name: c}"), "", ""},
		"of anything, old":         {pvc, of("dataSource: {apiGroup: a.b, kind: Thing, name: c}"), "", "spec.dataSource: Forbidden: must be a PersistentVolumeClaim or a VolumeSnapshot; use `dataSourceRef` for objects of other kinds"},
		"of a pod":                 {pvc, of("dataSource: {kind: Pod, name: c}"), "", "spec.dataSource: Invalid value: \"Pod\": must be 'PersistentVolumeClaim' when referencing the default apiGroup"},
		"of two":                   {pvc, of("dataSource: {kind: PersistentVolumeClaim, name: c}, dataSourceRef: {kind: PersistentVolumeClaim, name: d}"), "", "spec: Invalid value"},
		"of another namespace":     {pvc, of("dataSourceRef: {kind: PersistentVolumeClaim, name: d, namespace: ns}"), "", "spec.dataSourceRef.namespace: Forbidden: not supported by Monopod yet: copy the source to the namespace of the claim"},
		"it gets a volume":         {pvc, of("volumeName: v"), of(""), ""},
		"it gets another":          {pvc, of("volumeName: w"), of("volumeName: v"), "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"},
		"it grows too early":       {pvc, sized("3Gi", ""), of(""), "spec: Forbidden"},
		"it grows":                 {pvc, in(bound, "3Gi", "volumeName: v"), in(bound, "2Gi", "volumeName: v"), ""},
		"it grows less":            {pvc, in(bound, "3Gi", "volumeName: v"), in(bound, "4Gi", "volumeName: v"), ""},
		"it shrinks":               {pvc, in(bound, "1Gi", "volumeName: v"), in(bound, "2Gi", "volumeName: v"), "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		"its modes change":         {pvc, "spec: {accessModes: [ReadOnlyMany], resources: {requests: {storage: 2Gi}}}", of(""), "spec: Forbidden"},
		"it gets a class":          {pvc, of("storageClassName: c"), of(""), ""},
		"it gets another class":    {pvc, of("storageClassName: c"), of("storageClassName: d"), "spec: Forbidden"},
		"it loses its class":       {pvc, of(""), of("storageClassName: d"), "spec: Forbidden"},
		"its class moves":          {pvc, of("storageClassName: c"), old("c", ""), ""},
		"its class moves, kept":    {pvc, old("c", "storageClassName: c"), old("c", ""), ""},
		"its class moves off":      {pvc, old("c", "storageClassName: d"), old("c", ""), "spec: Forbidden"},
		"its old class changes":    {pvc, old("d", ""), old("c", ""), "metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value"},
		"its attributes, unbound":  {pvc, of("volumeAttributesClassName: g"), of(""), "spec: Forbidden"},
		"its attributes change":    {pvc, in(bound, "2Gi", "volumeAttributesClassName: g"), in(bound+", currentVolumeAttributesClassName: s", "2Gi", "volumeAttributesClassName: s"), ""},
		"its attributes go":        {pvc, in(bound, "2Gi", ""), in(bound+", currentVolumeAttributesClassName: s", "2Gi", "volumeAttributesClassName: s"), "spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"},
		"its attributes are empty": {pvc, in(bound, "2Gi", "volumeAttributesClassName: ''"), in(bound+", currentVolumeAttributesClassName: s", "2Gi", "volumeAttributesClassName: s"), "spec.volumeAttributesClassName: Forbidden: update to empty string"},
		"its source, by halves": {pvc, of("dataSource: {kind: PersistentVolumeClaim, name: c}"),
			of("dataSource: {kind: PersistentVolumeClaim, name: c}, dataSourceRef: {kind: PersistentVolumeClaim, name: c}"), ""},
	} {
		t.Run(name, tc.check)
	}
}

func TestStatusOfVolumesAndClaims(t *testing.T) {
	pv, pvc := persistentvolume.Resource(), persistentvolumeclaim.Resource()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	if pv.Prepare(v); v.Status.Phase != corev1.VolumePending || v.Status.LastPhaseTransitionTime == nil {
		t.Errorf("a new volume: %+v", v.Status)
	}
	begun := metav1.NewTime(v.Status.LastPhaseTransitionTime.Add(-time.Hour))
	v.Status.LastPhaseTransitionTime = &begun
	same := v.DeepCopy()
	same.Status.LastPhaseTransitionTime, same.Status.Message = nil, "m"
	if pv.Status.Prepare(same, v); !same.Status.LastPhaseTransitionTime.Equal(&begun) {
		t.Errorf("the same phase began %v", same.Status.LastPhaseTransitionTime)
	}
	for _, said := range []*metav1.Time{nil, &begun} {
		next := v.DeepCopy()
		next.Status.Phase, next.Status.LastPhaseTransitionTime = corev1.VolumeBound, said
		if pv.Status.Prepare(next, v); !next.Status.LastPhaseTransitionTime.After(begun.Time) {
			t.Errorf("the next phase began %v", next.Status.LastPhaseTransitionTime)
		}
	}
	if errs := pv.Status.Update(&corev1.PersistentVolume{}, v); len(errs) != 1 || errs[0].Field != "resourceVersion" {
		t.Errorf("without a version: %v", errs)
	}
	for status, want := range map[string]string{
		"{capacity: {storage: 1Gi, example.com/iops: 3}, allocatedResources: {storage: 1Gi}, allocatedResourceStatuses: {storage: NodeResizePending}}": "",
		"{capacity: {storage: -1}}":                                   "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
		"{allocatedResources: {cpu: 1}}":                              `status.allocatedResources: Unsupported value: "cpu": supported values: "storage"`,
		"{allocatedResources: {storage: 1500m}}":                      "status.allocatedResources[storage]: Invalid value",
		"{allocatedResourceStatuses: {storage: Some}}":                `status.allocatedResourceStatuses: Unsupported value: "storage"`,
		"{allocatedResourceStatuses: {'a b/c d': NodeResizePending}}": "status.allocatedResourceStatuses: Invalid value",
	} {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
		if err := yaml.UnmarshalStrict([]byte("status: "+status), c); err != nil {
			t.Fatal(err)
		}
		errs := pvc.Status.Update(c, c)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) == 0 || !strings.HasPrefix(errs[0].Error(), want)) {
			t.Errorf("%s: %v, want %s", status, errs, want)
		}
	}
}

func TestWarningsOfVolumesAndClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		told []string
		want string
	}{
		"volume": {warned(t, persistentvolume.Resource().Warn, "{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: c}}, spec: {nodeAffinity: {required: {nodeSelectorTerms: "+
			"[{matchExpressions: [{key: beta.kubernetes.io/os, operator: Exists}]}]}}}}"),
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead;` +
				`spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`},
		"claim": {warned(t, persistentvolumeclaim.Resource().Warn, "{spec: {resources: {requests: {storage: 1500m}, limits: {storage: 1}}}}"),
			`spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`},
	} {
		if got := strings.Join(tc.told, ";"); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
