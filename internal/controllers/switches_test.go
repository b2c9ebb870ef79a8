package controllers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// task is something that one controller has to do, and no other one does.
type task struct {
	begin func() error
	done  func(ctx context.Context) (bool, error)
}

// tasks make tasks in the namespace "tasks".
type tasks struct {
	*testing.T
	client kubernetes.Interface
}

const ns = "tasks"

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: ns} }

func (w *tasks) template(app string, policy corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{
		RestartPolicy: policy, SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "one"}},
	}}
}

func (w *tasks) pod(name string, change func(*corev1.PodSpec)) error {
	t := w.template(name, corev1.RestartPolicyAlways)
	change(&t.Spec)
	_, err := w.client.CoreV1().Pods(ns).Create(w.Context(), &corev1.Pod{ObjectMeta: named(name), Spec: t.Spec}, metav1.CreateOptions{})
	return err
}

// owns is a task that is done when there are pods of an application.
func (w *tasks) owns(app string, begin func(of metav1.LabelSelector, t corev1.PodTemplateSpec) error) task {
	return task{func() error {
		return begin(metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, w.template(app, corev1.RestartPolicyAlways))
	}, func(ctx context.Context) (bool, error) {
		list, err := w.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		return err == nil && len(list.Items) > 0, err
	}}
}

// node makes a node that is ready, or not.
func (w *tasks) node(name string, ready corev1.ConditionStatus, spec corev1.NodeSpec) error {
	client := w.client.CoreV1().Nodes()
	node, err := client.Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	node.Status = corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}, Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
	}
	_, err = client.UpdateStatus(w.Context(), node, metav1.UpdateOptions{})
	return err
}

// jobOf is a job that the test runs itself.
func (w *tasks) jobOf() batchv1.JobSpec {
	return batchv1.JobSpec{ManagedBy: ptr.To("example.com/test"), Template: w.template("job", corev1.RestartPolicyNever)}
}

func gone(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// all are the tasks by the names of the controllers.
func (w *tasks) all() map[string]task {
	all := w.ofPods()
	maps.Copy(all, w.ofNodes())
	maps.Copy(all, w.ofTheCluster())
	maps.Copy(all, w.ofTheRest())
	maps.Copy(all, w.ofVolumes())
	return all
}

func (w *tasks) ofPods() map[string]task {
	ctx, apps := w.Context(), w.client.AppsV1()
	return map[string]task{
		catalog.Deployment: {func() error {
			t := w.template("deployment", corev1.RestartPolicyAlways)
			_, err := apps.Deployments(ns).Create(ctx, &appsv1.Deployment{ObjectMeta: named("deployment"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: t.Labels}, Template: t}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			list, err := apps.ReplicaSets(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=deployment"})
			return err == nil && len(list.Items) > 0, err
		}},
		catalog.ReplicaSet: w.owns("replicaset", func(of metav1.LabelSelector, t corev1.PodTemplateSpec) error {
			_, err := apps.ReplicaSets(ns).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: named("replicaset"), Spec: appsv1.ReplicaSetSpec{Selector: &of, Template: t}}, metav1.CreateOptions{})
			return err
		}),
		catalog.Replication: w.owns("rc", func(_ metav1.LabelSelector, t corev1.PodTemplateSpec) error {
			_, err := w.client.CoreV1().ReplicationControllers(ns).Create(ctx, &corev1.ReplicationController{ObjectMeta: named("rc"), Spec: corev1.ReplicationControllerSpec{Template: &t}}, metav1.CreateOptions{})
			return err
		}),
		catalog.StatefulSet: w.owns("statefulset", func(of metav1.LabelSelector, t corev1.PodTemplateSpec) error {
			_, err := apps.StatefulSets(ns).Create(ctx, &appsv1.StatefulSet{ObjectMeta: named("statefulset"), Spec: appsv1.StatefulSetSpec{ServiceName: "none", Selector: &of, Template: t}}, metav1.CreateOptions{})
			return err
		}),
		catalog.DaemonSet: w.owns("daemonset", func(of metav1.LabelSelector, t corev1.PodTemplateSpec) error {
			_, err := apps.DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{ObjectMeta: named("daemonset"), Spec: appsv1.DaemonSetSpec{Selector: &of, Template: t}}, metav1.CreateOptions{})
			return err
		}),
		catalog.Job: w.owns("running", func(_ metav1.LabelSelector, t corev1.PodTemplateSpec) error {
			t.Spec.RestartPolicy = corev1.RestartPolicyNever
			_, err := w.client.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: named("running"), Spec: batchv1.JobSpec{Template: t}}, metav1.CreateOptions{})
			return err
		}),
		catalog.TTLAfterFinished: {func() error {
			spec := w.jobOf()
			spec.TTLSecondsAfterFinished = ptr.To[int32](0)
			j, err := w.client.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: named("ttl"), Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			now := metav1.Now()
			j.Status = batchv1.JobStatus{StartTime: &j.CreationTimestamp, CompletionTime: &now, Succeeded: 1}
			for _, c := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
				j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
			}
			_, err = w.client.BatchV1().Jobs(ns).UpdateStatus(ctx, j, metav1.UpdateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			j, err := w.client.BatchV1().Jobs(ns).Get(ctx, "ttl", metav1.GetOptions{})
			if err == nil {
				return j.DeletionTimestamp != nil, nil // it waits for the garbage collector
			}
			return gone(err)
		}},
		catalog.CronJob: {func() error {
			cj, err := w.client.BatchV1().CronJobs(ns).Create(ctx, &batchv1.CronJob{ObjectMeta: named("cron"), Spec: batchv1.CronJobSpec{
				Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: w.jobOf()},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			cj.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-time.Hour)} // so that a time has come
			_, err = w.client.BatchV1().CronJobs(ns).UpdateStatus(ctx, cj, metav1.UpdateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			list, err := w.client.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
			return err == nil && slices.ContainsFunc(list.Items, func(j batchv1.Job) bool { return len(j.OwnerReferences) > 0 }), err
		}},
	}
}

func (w *tasks) ofNodes() map[string]task {
	ctx, core := w.Context(), w.client.CoreV1()
	return map[string]task{
		catalog.Binder: {func() error {
			return w.pod("bound", func(s *corev1.PodSpec) { s.SchedulerName = "" })
		}, func(ctx context.Context) (bool, error) {
			pod, err := core.Pods(ns).Get(ctx, "bound", metav1.GetOptions{})
			return err == nil && pod.Spec.NodeName != "", err
		}},
		catalog.NodeLifecycle: {func() error {
			return w.node("cordoned", corev1.ConditionTrue, corev1.NodeSpec{Unschedulable: true})
		}, func(ctx context.Context) (bool, error) {
			node, err := core.Nodes().Get(ctx, "cordoned", metav1.GetOptions{})
			return err == nil && len(node.Spec.Taints) > 0, err
		}},
		catalog.TaintEviction: {func() error {
			if err := w.node("tainted", corev1.ConditionTrue, corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}}); err != nil {
				return err
			}
			return w.pod("evicted", func(s *corev1.PodSpec) { s.NodeName = "tainted" })
		}, func(ctx context.Context) (bool, error) {
			pod, err := core.Pods(ns).Get(ctx, "evicted", metav1.GetOptions{})
			if err == nil {
				return pod.DeletionTimestamp != nil, nil // there is no agent that ends it
			}
			return gone(err)
		}},
		catalog.PodGC: {func() error {
			if err := w.node("dead", corev1.ConditionFalse, corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}}); err != nil {
				return err
			}
			if err := w.pod("collected", func(s *corev1.PodSpec) { s.NodeName = "dead" }); err != nil {
				return err
			}
			return core.Pods(ns).Delete(ctx, "collected", metav1.DeleteOptions{})
		}, func(ctx context.Context) (bool, error) {
			_, err := core.Pods(ns).Get(ctx, "collected", metav1.GetOptions{})
			return gone(err)
		}},
		catalog.ServiceLB: {func() error {
			_, err := core.Services(ns).Create(ctx, &corev1.Service{ObjectMeta: named("balanced"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			s, err := core.Services(ns).Get(ctx, "balanced", metav1.GetOptions{})
			return err == nil && len(s.Status.LoadBalancer.Ingress) > 0, err
		}},
		catalog.IngressClass: {func() error {
			class := "none"
			backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "x", Port: networkingv1.ServiceBackendPort{Number: 80}}}
			_, err := w.client.NetworkingV1().Ingresses(ns).Create(ctx, &networkingv1.Ingress{ObjectMeta: named("unled"), Spec: networkingv1.IngressSpec{IngressClassName: &class, DefaultBackend: backend}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			list, err := core.Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=unled"})
			return err == nil && len(list.Items) > 0, err
		}},
		catalog.Endpoints: {func() error {
			_, err := core.Services(ns).Create(ctx, &corev1.Service{ObjectMeta: named("service"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "service"}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			_, err := core.Endpoints(ns).Get(ctx, "service", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		}},
	}
}

func (w *tasks) ofTheCluster() map[string]task {
	ctx, core := w.Context(), w.client.CoreV1()
	namespace := func(name string) error {
		_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	return map[string]task{
		catalog.ServiceAccount: {func() error { return namespace("accounts") }, func(ctx context.Context) (bool, error) {
			list, err := core.ServiceAccounts("accounts").List(ctx, metav1.ListOptions{})
			return err == nil && len(list.Items) > 0, err
		}},
		catalog.AccountTokens: {func() error {
			m := named("token")
			m.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			_, err := core.Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: m, Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			s, err := core.Secrets(ns).Get(ctx, "token", metav1.GetOptions{})
			return err == nil && len(s.Data["token"]) > 0, err
		}},
		catalog.RootCA: {func() error { return namespace("roots") }, func(ctx context.Context) (bool, error) {
			list, err := core.ConfigMaps("roots").List(ctx, metav1.ListOptions{})
			return err == nil && len(list.Items) > 0, err
		}},
		catalog.Namespace: {func() error {
			if err := namespace("going"); err != nil {
				return err
			}
			return core.Namespaces().Delete(ctx, "going", metav1.DeleteOptions{})
		}, func(ctx context.Context) (bool, error) {
			_, err := core.Namespaces().Get(ctx, "going", metav1.GetOptions{})
			return gone(err)
		}},
		catalog.GarbageCollector: {func() error {
			m := named("orphan")
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
			_, err := core.ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			_, err := core.ConfigMaps(ns).Get(ctx, "orphan", metav1.GetOptions{})
			return gone(err)
		}},
		catalog.Aggregation: {func() error {
			for _, role := range []*rbacv1.ClusterRole{
				{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: map[string]string{"part": "yes"}}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"part": "yes"}}}}},
			} {
				if _, err := w.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		}, func(ctx context.Context) (bool, error) {
			role, err := w.client.RbacV1().ClusterRoles().Get(ctx, "sum", metav1.GetOptions{})
			return err == nil && len(role.Rules) > 0, err
		}},
		catalog.Certificates: {w.askForCertificate, func(ctx context.Context) (bool, error) {
			r, err := w.client.CertificatesV1().CertificateSigningRequests().Get(ctx, "request", metav1.GetOptions{})
			return err == nil && len(r.Status.Certificate) > 0, err
		}},
		catalog.PodCertificates: {func() error {
			if err := w.pod("known", func(*corev1.PodSpec) {}); err != nil {
				return err
			}
			pod, err := w.client.CoreV1().Pods(ns).Get(ctx, "known", metav1.GetOptions{})
			if err != nil {
				return err
			}
			r, _ := askedForPod(w.T, pod, nil)
			r.Name, r.GenerateName = "known", ""
			_, err = w.client.CertificatesV1().PodCertificateRequests(ns).Create(ctx, r, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			r, err := w.client.CertificatesV1().PodCertificateRequests(ns).Get(ctx, "known", metav1.GetOptions{})
			return err == nil && r.Status.CertificateChain != "", err
		}},
		catalog.TrustBundles: {func() error { return nil }, func(ctx context.Context) (bool, error) {
			list, err := w.client.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=kubernetes.io/kube-apiserver-serving"})
			return err == nil && len(list.Items) > 0, err
		}},
	}
}

// askForCertificate makes a request for an agent's certificate, and approves it.
func (w *tasks) askForCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		return err
	}
	client := w.client.CertificatesV1().CertificateSigningRequests()
	r, err := client.Create(w.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "request"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	_, err = client.UpdateApproval(w.Context(), "request", r, metav1.UpdateOptions{})
	return err
}

func (w *tasks) ofTheRest() map[string]task {
	ctx, apps := w.Context(), w.client.AppsV1()
	one := intstr.FromInt32(1)
	return map[string]task{
		catalog.Disruption: {func() error {
			_, err := w.client.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: named("budget"), Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}},
			}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			b, err := w.client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "budget", metav1.GetOptions{})
			return err == nil && b.Status.ObservedGeneration > 0, err
		}},
		catalog.ServiceCIDR: {func() error {
			_, err := w.client.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{
				ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"192.0.2.0/24"}},
			}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			c, err := w.client.NetworkingV1().ServiceCIDRs().Get(ctx, "more", metav1.GetOptions{})
			return err == nil && len(c.Status.Conditions) > 0, err
		}},
		catalog.Autoscaler: {func() error {
			t := w.template("scaled", corev1.RestartPolicyAlways)
			if _, err := apps.ReplicaSets(ns).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: named("scaled"), Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: t.Labels}, Template: t}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named("scaled"), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "scaled"}, MinReplicas: ptr.To[int32](2), MaxReplicas: 5,
			}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			set, err := apps.ReplicaSets(ns).Get(ctx, "scaled", metav1.GetOptions{})
			return err == nil && *set.Spec.Replicas == 2, err
		}},
	}
}

// TestEachControllerCanBeSwitchedOff: nothing of a controller's work is done while it is switched off and others are on, and all of it when it is on.
func TestEachControllerCanBeSwitchedOff(t *testing.T) {
	a := apitest.Start(t)
	w := &tasks{t, a.Client}
	if err := w.node("ready", corev1.ConditionTrue, corev1.NodeSpec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: named("default")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := w.all()
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, slices.Sorted(slices.Values(catalog.Names()))) {
		t.Fatalf("there are tasks for %v, and the controllers %v", names, catalog.Names())
	}
	for name, task := range all {
		if err := task.begin(); err != nil {
			t.Fatalf("the task of %s: %v", name, err)
		}
	}
	waiting := maps.Clone(all)
	for _, name := range catalog.Names() {
		choice := []string{"*"} // but all the others
		for _, other := range catalog.Names() {
			if other != name {
				choice = append(choice, "-"+other)
			}
		}
		stop := a.Control(choice...)
		harness.Eventually(t, name+" does its work", func() (bool, string) {
			done, err := all[name].done(t.Context())
			return done, fmt.Sprint(err)
		})
		stop()
		delete(waiting, name)
		for other, task := range waiting {
			if done, err := task.done(t.Context()); done || err != nil {
				t.Errorf("with %s alone the work of %s is done: %t, %v", name, other, done, err)
			}
		}
	}
}

func (w *tasks) ofVolumes() map[string]task {
	ctx, claims, volumes := w.Context(), w.client.CoreV1().PersistentVolumeClaims(ns), w.client.CoreV1().PersistentVolumes()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	return map[string]task{
		catalog.VolumeBinding: {func() error {
			_, err := volumes.Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Spec: corev1.PersistentVolumeSpec{
				AccessModes: modes, Capacity: size, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: named("bound"), Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, VolumeName: "bound",
			}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			claim, err := claims.Get(ctx, "bound", metav1.GetOptions{})
			return err == nil && claim.Status.Phase == corev1.ClaimBound, err
		}},
		catalog.ClaimProtection: {func() error {
			_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: named("goes"), Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return claims.Delete(ctx, "goes", metav1.DeleteOptions{})
		}, func(ctx context.Context) (bool, error) {
			_, err := claims.Get(ctx, "goes", metav1.GetOptions{})
			return gone(err)
		}},
		catalog.EphemeralVolume: {func() error {
			return w.pod("brings", func(p *corev1.PodSpec) {
				p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
						AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
					}},
				}}}}
			})
		}, func(ctx context.Context) (bool, error) {
			absent, err := func() (bool, error) { _, err := claims.Get(ctx, "brings-v", metav1.GetOptions{}); return gone(err) }()
			return !absent && err == nil, err
		}},
		catalog.AttributesProtection: {func() error {
			classes := w.client.StorageV1().VolumeAttributesClasses()
			_, err := classes.Create(ctx, &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "goes"}, DriverName: "example.com", Parameters: map[string]string{"a": "b"}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return classes.Delete(ctx, "goes", metav1.DeleteOptions{})
		}, func(ctx context.Context) (bool, error) {
			_, err := w.client.StorageV1().VolumeAttributesClasses().Get(ctx, "goes", metav1.GetOptions{})
			return gone(err)
		}},
		catalog.VolumeProtection: {func() error {
			_, err := volumes.Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "goes"}, Spec: corev1.PersistentVolumeSpec{
				AccessModes: modes, Capacity: size, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return volumes.Delete(ctx, "goes", metav1.DeleteOptions{})
		}, func(ctx context.Context) (bool, error) {
			_, err := volumes.Get(ctx, "goes", metav1.GetOptions{})
			return gone(err)
		}},
	}
}
