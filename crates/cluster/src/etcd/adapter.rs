//! The thread that speaks with etcd for an agent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::connection::{Connection, Etcd, EtcdError};
use super::keys::Keys;
use super::lookout::Lookout;
use super::registration::Registrar;
use super::transaction::transact;
use crate::ownership::{Action, Event, LastHeard, Lease, Moment, Names, NodeValue, Revision};

/// Who speaks.
#[derive(Debug, Clone)]
pub struct Own {
    /// The names of the nodes in the file, in its order.
    pub names: Names,
    /// The own one.
    pub name: String,
    /// What is said of it.
    pub value: NodeValue,
    /// This process has the tables of the one before, and so goes on with its key.
    pub has_adopted: bool,
    /// `CLOCK_BOOTTIME`.
    pub clock: fn() -> Moment,
    /// Learns when etcd has answered, by the same clock.
    pub heard: Arc<LastHeard>,
}

/// What is wanted.
#[derive(Debug)]
enum Wish {
    Act(Action),
    Describe(NodeValue),
}

/// The agent's end. The thread ends when it is dropped.
#[derive(Debug)]
pub struct Adapter {
    wishes: UnboundedSender<Wish>,
    fault: Arc<Mutex<Option<String>>>,
}

/// What the thread runs.
#[derive(Debug)]
pub struct Driver {
    etcd: Etcd,
    own: Own,
    wishes: UnboundedReceiver<Wish>,
    events: Sender<Event>,
    fault: Arc<Mutex<Option<String>>>,
}

impl Adapter {
    /// Both ends. What etcd says goes to `events`.
    #[must_use]
    pub fn new(etcd: Etcd, own: Own, events: Sender<Event>) -> (Self, Driver) {
        let (sender, wishes) = unbounded_channel();
        let fault = Arc::<Mutex<Option<String>>>::default();
        (Self { wishes: sender, fault: Arc::clone(&fault) }, Driver { etcd, own, wishes, events, fault })
    }

    /// Has done what is for etcd; what is not is left out.
    pub fn act(&self, action: Action) {
        // The thread ends after this end of it, or the gateway with the thread.
        let _ = self.wishes.send(Wish::Act(action));
    }

    /// Says this of the node from now on.
    pub fn describe(&self, value: NodeValue) {
        let _ = self.wishes.send(Wish::Describe(value));
    }

    /// What was wrong last, since it was asked for last.
    #[must_use]
    pub fn take_fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What the tasks of the thread share.
struct Shared {
    connection: Connection,
    keys: Keys,
    names: RefCell<Names>,
    name: String,
    value: RefCell<NodeValue>,
    has_adopted: bool,
    /// What the next key says of the life that begins with it.
    began_bare: Cell<bool>,
    clock: fn() -> Moment,
    /// Of the key that is there, as far as is known.
    registered: Cell<Option<(Lease, Revision)>>,
    events: Sender<Event>,
    fault: Arc<Mutex<Option<String>>>,
}

impl Driver {
    /// Runs until the other end is dropped.
    ///
    /// # Errors
    /// If the kernel has no more of what it takes to wait for sockets.
    pub fn run(self) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let Self { etcd, own, mut wishes, events, fault } = self;
        let shared = Rc::new(Shared {
            keys: Keys::of(&etcd.cluster),
            connection: Connection::new(etcd, move || own.heard.note((own.clock)())),
            names: RefCell::new(own.names),
            name: own.name,
            value: RefCell::new(own.value),
            has_adopted: own.has_adopted,
            began_bare: Cell::new(!own.has_adopted),
            clock: own.clock,
            registered: Cell::default(),
            events,
            fault,
        });
        let tasks = LocalSet::new();
        let looker = Rc::clone(&shared);
        tasks.spawn_local(async move { looker.look().await });
        tasks.block_on(&runtime, async {
            while let Some(wish) = wishes.recv().await {
                let shared = Rc::clone(&shared);
                // A call that hangs keeps no other one waiting.
                tokio::task::spawn_local(async move { shared.fulfil(wish).await });
            }
        });
        Ok(())
    }
}

impl Shared {
    async fn look(&self) {
        let lookout = Lookout {
            connection: &self.connection,
            keys: &self.keys,
            names: &self.names,
            tell: &|event| self.tell(event),
            fault: &|fault| self.say(fault),
        };
        lookout.keep().await;
    }

    async fn fulfil(&self, wish: Wish) {
        match wish {
            Wish::Act(Action::Register) => {
                // A process that has had a key may have got copies since.
                self.began_bare.set(self.began_bare.get() && self.registered.get().is_none());
                let value = self.said();
                let event = self.registrar(&value).register().await;
                let event = self.or_said(event).unwrap_or(Event::NotRegistered);
                if let Event::Registered { lease, created, .. } = event {
                    self.registered.set(Some((lease, created)));
                }
                self.tell(event);
            }
            Wish::Act(Action::Renew(lease)) => {
                let value = self.said();
                let event = self.registrar(&value).renew(lease).await;
                self.or_said(event).into_iter().for_each(|event| self.tell(event));
            }
            Wish::Act(Action::Transact(transaction)) => {
                let names = self.names.borrow().clone();
                let (event, error) = transact(&self.connection, &self.keys, &names, &transaction).await;
                error.into_iter().for_each(|error| self.say(error.to_string()));
                self.tell(event);
            }
            Wish::Act(_) => {}
            Wish::Describe(value) => {
                self.value.replace(value);
                if let Some((lease, created)) = self.registered.get() {
                    let value = self.said();
                    let said = self.registrar(&value).describe(lease, created).await;
                    self.or_said(said);
                }
            }
        }
    }

    /// What is said of the node.
    fn said(&self) -> NodeValue {
        NodeValue { began_bare: self.began_bare.get(), ..self.value.borrow().clone() }
    }

    fn registrar<'a>(&'a self, value: &'a NodeValue) -> Registrar<'a> {
        Registrar {
            connection: &self.connection,
            keys: &self.keys,
            name: &self.name,
            value,
            has_adopted: self.has_adopted,
            clock: self.clock,
        }
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more: the thread ends soon.
        let _ = self.events.send(event);
    }

    fn or_said<T>(&self, result: Result<T, EtcdError>) -> Option<T> {
        result.map_err(|error| self.say(error.to_string())).ok()
    }

    fn say(&self, fault: String) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }
}
