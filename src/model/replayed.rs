use super::*;
pub struct Replayed {
    name: String,
    replies: std::sync::Mutex<std::collections::VecDeque<Reply>>,
}
impl Replayed {
    pub fn new(name: &str, replies: Vec<Reply>) -> Self {
        Self { name: name.into(), replies: std::sync::Mutex::new(replies.into()) }
    }
}
impl ChatModel for Replayed {
    fn ask<'a>(&'a self, _r: Request<'a>, _p: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async move {
            self.replies.lock().unwrap().pop_front().ok_or_else(|| crate::Error::endpoint("over"))
        })
    }
    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(vec![]) })
    }
    fn name(&self) -> &str {
        &self.name
    }
}
